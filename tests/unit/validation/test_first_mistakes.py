"""Mistakes of a first week in the project of `slackwater init`: each is refused with one message, at its position.

Each one changes one place of a valid project.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from slackwater.cli.main import run

pytestmark = pytest.mark.unit

SOURCE, PIPELINE = "sources/orders.yaml", "pipelines/daily_sales.yaml"
QUERY = "steps.sales_by_shop.with.query: "


class Mistake(NamedTuple):
    file: str
    before: str
    after: str
    printed: str
    """The begin of what is printed: line and column, the keys, and the message."""


MISTAKES = {
    "a key is misspelt": Mistake(
        PIPELINE,
        "depends_on: [orders]",
        "depend_on: [orders]",
        "9:5  steps.checked_orders.depend_on: unknown key (did you mean depends_on?)",
    ),
    "a value has a wrong type": Mistake(
        PIPELINE, "sources: [orders]", "sources: orders", "5:10  sources: wrong value: 'orders' (expected a list)"
    ),
    "a key is missing": Mistake(
        PIPELINE, "    step: sql\n", "", "14:3  steps.sales_by_shop.step: missing (expected a string)"
    ),
    "a step does not exist": Mistake(
        PIPELINE, "step: sql", "step: sqll", "15:11  steps.sales_by_shop.step: no step 'sqll' (did you mean sql?)"
    ),
    "a dependency does not exist": Mistake(
        PIPELINE,
        "depends_on: [checked_orders]",
        "depends_on: [cheked_orders]",
        "16:18  steps.sales_by_shop.depends_on: no source or step 'cheked_orders' (did you mean checked_orders?)",
    ),
    "a source does not exist": Mistake(
        PIPELINE,
        "sources: [orders]",
        "sources: [order]",
        "5:11  sources: no source 'order' in this project (did you mean orders?)",
    ),
    "a key occurs twice": Mistake(
        PIPELINE,
        "sources: [orders]",
        "sources: [orders]\ntimezone: UTC",
        "6:1  timezone: duplicate key: the first one is in line 4",
    ),
    "a tab indents a line": Mistake(
        PIPELINE, "    step: sql", "\tstep: sql", "15:1  not readable as YAML: a tab indents this line: use spaces"
    ),
    "a line is indented too far": Mistake(
        PIPELINE,
        "    step: sql",
        "     step: sql",
        "16:5  not readable as YAML: this line is indented otherwise than those that it belongs to",
    ),
    "a timezone does not exist": Mistake(
        PIPELINE,
        "timezone: Europe/Berlin ",
        "timezone: Europe/Berln ",
        "4:11  timezone: no such timezone: 'Europe/Berln' (did you mean Europe/Berlin?)",
    ),
    "a schedule has no such hour": Mistake(
        PIPELINE,
        "sources: [orders]",
        "schedule: {process: 0 25 * * *}\nsources: [orders]",
        "5:21  schedule.process: '0 25 * * *': '25' is not a valid hour (examples: *, 0, 0-23, */2, 0,23)",
    ),
    "publish.key is no column": Mistake(
        PIPELINE,
        "key: [date, shop]",
        "key: [date, shp]",
        "24:15  publish.key: no column 'shp' in sales_by_shop (did you mean shop?)",
    ),
    "a rule checks no column": Mistake(
        PIPELINE,
        "column: amount",
        "column: amont",
        "13:33  steps.checked_orders.with.rules.0.column: no column 'amont' in orders (did you mean amount?)",
    ),
    "a rule does not exist": Mistake(
        PIPELINE,
        "rule: range",
        "rule: rnge",
        "13:18  steps.checked_orders.with.rules.0.rule: wrong value: 'rnge' (did you mean range?)",
    ),
    "a limit has the type of another column": Mistake(
        PIPELINE,
        "min: 0,",
        "min: zero,",
        "13:46  steps.checked_orders.with.rules.0.min: 'zero' is not a value of amount, which is of type double",
    ),
    "a day does not exist": Mistake(
        PIPELINE,
        "severity: reject}",
        "severity: reject}\n        - {rule: allowed, column: shop, values: [2024-13-01]}",
        "14:50  steps.checked_orders.with.rules.1.values: 2024-13-01 is not a value: month must be in 1..12: write it",
    ),
    "a query reads no column": Mistake(
        PIPELINE,
        "sum(amount)",
        "sum(amont)",
        f"19:52  {QUERY}no column 'amont' in checked_orders (did you mean amount?)",
    ),
    "a query reads a column that only stored events have": Mistake(
        PIPELINE,
        "sum(amount)",
        "max_by(amount, _received_at)",
        f"19:63  {QUERY}no column '_received_at' in checked_orders: stored events have it for queries, and steps do "
        "not see it: use a field of the source (did you mean ordered_at?)",
    ),
    "a query reads no input": Mistake(
        PIPELINE,
        "FROM checked_orders",
        "FROM chekced_orders",
        f"20:14  {QUERY}chekced_orders is not an input of the step (did you mean checked_orders?)",
    ),
    "a column is qualified by no table": Mistake(
        PIPELINE, "sum(amount)", "sum(t.amount)", f"19:52  {QUERY}no table 't' in the query (expected checked_orders)"
    ),
    "a function is misspelt": Mistake(
        PIPELINE, "round(", "ruond(", f"19:42  {QUERY}Spark has no function 'ruond' (did you mean round?)"
    ),
    "a function has too many arguments": Mistake(
        PIPELINE, "sum(amount), 2)", "sum(amount), 2, 3)", f"19:42  {QUERY}round takes 1 or 2 arguments, not 3"
    ),
    "GROUP BY is missing": Mistake(
        PIPELINE,
        "        GROUP BY shop\n",
        "",
        f"19:16  {QUERY}shop is neither in GROUP BY nor in an aggregate: add it to GROUP BY, or agg",
    ),
    "a column is not grouped": Mistake(
        PIPELINE,
        "SELECT shop,",
        "SELECT shop, order_id,",
        f"19:22  {QUERY}order_id is neither in GROUP BY nor in an aggregate: add it to GROUP BY, or",
    ),
    "an aggregate is in WHERE": Mistake(
        PIPELINE,
        "GROUP BY shop",
        "WHERE sum(amount) > 3 GROUP BY shop",
        f"21:15  {QUERY}sum(...) aggregates rows: WHERE reads them one by one: use HAVING",
    ),
    "a window function has no window": Mistake(
        PIPELINE,
        "count(*)",
        "row_number()",
        f"19:22  {QUERY}row_number needs a window: write `row_number(...) OVER (PARTITION BY ... OR",
    ),
    "a type to cast to does not exist": Mistake(
        PIPELINE,
        "sum(amount)",
        "sum(CAST(amount AS doubel))",
        f"19:67  {QUERY}not readable as SQL: doubel is not a type such as int, double, string or de",
    ),
    "two columns have one name": Mistake(
        PIPELINE,
        "SELECT shop,",
        "SELECT shop, max(amount) AS Shop,",
        f"19:22  {QUERY}two columns of the result have the name Shop: rename one of them with AS",
    ),
    "a comma ends a list": Mistake(
        PIPELINE, "AS revenue", "AS revenue,", f"19:74  {QUERY}nothing follows this comma: remove it"
    ),
    "an alias is in WHERE": Mistake(
        PIPELINE,
        "GROUP BY shop",
        "WHERE revenue > 3 GROUP BY shop",
        f"21:15  {QUERY}no column 'revenue' in checked_orders (expected one of order_id, shop, amou",
    ),
    "a number of late rows is negative": Mistake(
        SOURCE,
        "late: {rows: 1}",
        "late: {rows: -1}",
        "13:14  late.rows: wrong value: -1 (expected a value of at least 0)",
    ),
    "a number of late rows has a unit": Mistake(
        SOURCE, "late: {rows: 1}", "late: {rows: 1 day}", "13:14  late.rows: wrong value: '1 day' (expected an integer)"
    ),
    "a type of a field does not exist": Mistake(
        SOURCE,
        "type: double",
        "type: duoble",
        "10:18  fields.amount.type: wrong value: 'duoble' (expected 'string', 'int64', 'double', 'boolean', 'timestam",
    ),
    "a field has a reserved name": Mistake(
        SOURCE,
        "  ordered_at: timestamp",
        "  ordered_at: timestamp\n  _received_at: timestamp",
        "12:3  fields._received_at: wrong value: '_received_at' (expected up to 63 lower-case letters, digits and _, ",
    ),
    "an id is no field": Mistake(
        SOURCE,
        "event_id: order_id",
        "event_id: orderid",
        "6:11  event_id: 'orderid' must be listed in `fields` with type int64 or string (did you mean order_id?)",
    ),
    "a bracket is not closed": Mistake(
        PIPELINE, ", 2) AS", ", 2 AS", f"19:63  {QUERY}not readable as SQL: ) is expected near AS"
    ),
    "a step reads itself": Mistake(
        PIPELINE,
        "depends_on: [checked_orders]",
        "depends_on: [checked_orders, sales_by_shop]",
        "16:34  steps.sales_by_shop.depends_on: the steps form a cycle: sales_by_shop -> sales_by_shop",
    ),
}


@pytest.fixture
def project(tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "."]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_with_its_position(project, printed_by, mistake):
    path = project / mistake.file
    content = path.read_text()
    assert content.count(mistake.before) == 1
    path.write_text(content.replace(mistake.before, mistake.after))
    (line,) = printed_by("pipeline", "validate", code=2).out.splitlines()
    assert line.startswith(f"{mistake.file}:{mistake.printed}")


def test_two_files_of_one_name_are_refused(project, printed_by):
    (project / "pipelines" / "copy.yaml").write_text((project / PIPELINE).read_text())
    (line,) = printed_by("pipeline", "validate", code=2).out.splitlines()
    assert line.startswith(
        "pipelines/copy.yaml:2:11  pipeline: it defines 'daily_sales': name the file daily_sales.yaml"
    )
