"""Parameters of the transform steps: what is refused before anything runs, without Spark."""

from __future__ import annotations

import re
from typing import Any

import pytest

from slackwater.errors import DefinitionError
from slackwater.steps.registry import registry, validated
from slackwater.steps.sql_rules import check_condition
from slackwater.steps.step import Transform

pytestmark = pytest.mark.unit


def fault(name: str, parameters: dict[str, Any], *inputs: str) -> str:
    step = registry()[name]
    with pytest.raises(DefinitionError) as caught:
        step.check(inputs or ("rows",), validated(step, parameters, place="with"))
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name, step in registry().items() if isinstance(step, Transform)])
def test_parameters_are_documented(name):
    """The docstrings of the fields are the documentation: of nested models, too."""
    schema = registry()[name].parameters.model_json_schema()
    for model in (schema, *schema.get("$defs", {}).values()):
        for field, described in model["properties"].items():
            assert described.get("description") or "const" in described, f"{model['title']}.{field}"


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("clean_nan", {}, "strategy: clean_nan needs a strategy for all columns, or some in `columns`"),
        ("clean_nan", {"strategy": "men"}, "with.strategy.name: Input should be 'drop', 'mean', 'median', 'mode' or"),
        (
            "clean_nan",
            {"columns": {"a": {"constant": None}}},
            "with.columns.a.constant.constant: a string",
        ),
        ("clean_nan", {"strategy": "forward"}, "order_by: forward needs the columns that order the rows"),
        ("clean_nan", {"columns": {"a": "forward"}, "order_by": ["t"]}, "group_by: forward needs the columns whose"),
        ("clean_nan", {"strategy": "mean", "order_by": ["t"]}, "order_by: only forward uses it"),
        ("clean_nan", {"strategy": {"constant": 1}, "group_by": []}, "group_by: only forward uses it"),
        ("select", {}, "columns: select needs columns, rename or cast"),
        ("select", {"columns": ["a"], "rename": {"b": "c"}}, "rename: b is not in `columns`: add it there"),
        ("select", {"columns": ["a"], "cast": {"A": "int"}}, "cast: A is not in `columns`"),
        ("select", {"columns": ["a", "A"]}, "columns: a column is named twice (a)"),
        (
            "select",
            {"cast": {"a": "varchar(2)"}},
            "with.cast.a: 'varchar(2)': Spark does not check the length: use string",
        ),
        ("select", {"cast": {"a": "array<char(2)>"}}, "with.cast.a: 'array<char(2)>': Spark does not check the length"),
        ("select", {"cast": {"a": "strng"}}, "with.cast.a: 'strng' is not a type such as int, double"),
        ("delete_columns", {"columns": []}, "with.columns: Tuple should have at least 1 item"),
        ("delete_columns", {"columns": ["a", "a"]}, "columns: a column is named twice"),
        ("filter", {"where": "a >"}, "with.where: not readable as SQL: "),
        ("outliers", {"columns": ["a"], "method": "iqr", "action": "flag", "threshold": 0}, "with.threshold: Input"),
        ("aggregate", {"measures": {}}, "with.measures: Dictionary should have at least 1 item"),
        ("aggregate", {"measures": {"m": {"function": "sum"}}}, "measures.m.column: sum needs it"),
        ("aggregate", {"measures": {"m": {"function": "quantile", "column": "a"}}}, "measures.m.q: quantile needs it"),
        ("aggregate", {"measures": {"m": {"function": "count", "q": 0.5}}}, "measures.m.q: count does not use it"),
        ("aggregate", {"measures": {"m": {"function": "last", "column": "a"}}}, "measures.m.order_by: last needs it"),
        (
            "aggregate",
            {"group_by": ["m"], "measures": {"M": {"function": "count"}}},
            "measures: a column is named twice",
        ),
        ("deduplicate", {"keys": ["a"], "order_by": ["a"]}, "order_by: a column is named twice (a)"),
        ("lookup", {"column": "a", "values": ["b", "c"], "missing": "keep"}, "missing: keep needs exactly one column"),
        ("lookup", {"column": "a", "values": ["b"], "missing": "skip"}, "with.missing: Input should be 'fail', 'drop'"),
    ],
)
def test_wrong_parameters_are_named(name, parameters, message):
    assert fault(name, parameters).startswith(message)


@pytest.mark.parametrize(
    ("rule", "inputs", "message"),
    [
        ({"rule": "nulls"}, "a", "with.rules.0: Input tag 'nulls' found using 'rule' does not match any"),
        (
            {"rule": "row_count", "min": 1, "severity": "reject"},
            "a",
            "with.rules.0.row_count.severity: Input should be",
        ),
        (
            {"rule": "freshness", "column": "t", "hours": 1, "severity": "reject"},
            "a",
            "with.rules.0.freshness.severity",
        ),
        ({"rule": "range", "column": "a"}, "a", "rules.0.min: range needs min, max or both"),
        ({"rule": "row_count"}, "a", "rules.0.min: row_count needs min, max or both"),
        ({"rule": "row_count", "min": 2, "max": 1}, "a", "rules.0.max: 1 is less than min, 2"),
        (
            {"rule": "allowed", "column": "a", "values": [float("nan")]},
            "a",
            "with.rules.0.allowed.values.0: a string",
        ),
        ({"rule": "unique", "columns": ["a", "A"]}, "a", "rules.0.columns: a column is named twice"),
        (
            {"rule": "referential", "columns": ["a"]},
            "a",
            "rules.0.rule: referential needs a second input in `depends_on`",
        ),
        (
            {"rule": "referential", "columns": ["a", "b"], "reference_columns": ["c"]},
            "ab",
            "rules.0.reference_columns: 2 columns are needed",
        ),
        ({"rule": "not_null", "column": "a"}, "ab", "rules: the second input b is not needed"),
    ],
)
def test_wrong_rules_are_named(rule, inputs, message):
    assert fault("data_quality", {"rules": [rule]}, *inputs).startswith(message)


def test_yaml_reads_the_word_null_as_no_value():
    step = registry()["lookup"]
    parameters = {"column": "a", "values": ["b"]}
    for missing in ("null", None):
        assert validated(step, {**parameters, "missing": missing}, place="with").missing == "null"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "condition",
    [
        "a > 1",
        "`a b`.c IS NULL AND b IN (1, 2) -- why",
        "is_late",
        "CASE WHEN a THEN b END",
        "exists(list, x -> x > 1)",
        "name = 'SELECT 1; DROP TABLE x'",
        "NOT (a BETWEEN DATE '2013-03-10' AND current_date())",
    ],
)
def test_conditions_over_a_row_are_allowed(condition):
    assert check_condition(condition) == condition


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "one statement is expected, not 0"),
        ("a > 0; SELECT 1", "one statement is expected, not 2"),
        ("a > 0;", "a condition has no `;`: remove it"),
        (";a > 0", "a condition has no `;`: remove it"),
        (f"{'(' * 3000}a{')' * 3000}", "more nested than Python can read"),
        ("1 = 1) UNION SELECT (1", "not readable as SQL: "),
        ("a, b", "not readable as SQL: "),
        ("SELECT 1", "a subquery is not allowed in a condition"),
        ("a IN (SELECT 1)", "a subquery is not allowed in a condition"),
        ("EXISTS (SELECT 1 FROM t)", "a subquery is not allowed in a condition"),
        ("DROP TABLE t", "a subquery is not allowed in a condition"),
        ("max(a) > 1", "MAX(a): a condition calls only functions of one row's values"),
        ("row_number() OVER (ORDER BY a) = 1", "ROW_NUMBER() OVER (ORDER BY a): a condition calls only"),
        ("explode(array(true))", "EXPLODE(ARRAY(TRUE)): a condition calls only"),
        ("reflect('java.lang.System', 'exit')", "the function reflect is not allowed"),
        ("a AS b", "a condition such as `distance > 0` is expected, not ALIAS"),
    ],
)
def test_other_sql_is_no_condition(condition, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        check_condition(condition)
