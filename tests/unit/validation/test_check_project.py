"""All problems of all files of a project are reported at once, and a project with problems is not loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.errors import DefinitionError
from slackwater.project.project import load_definitions, load_project, load_source
from slackwater.validation.check_project import check_pipeline, check_project
from tests.step_package import example_package, installed_package

pytestmark = pytest.mark.unit

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FILES = {
    "sources/orders.yaml": """\
source: orders
timestamp: {field: at, timezone: Europe/Berln}
fields: {at: timestamp, shop: string, amount: double}
push: {bufer: queue}
""",
    "sources/shops.yaml": """\
source: shops
timestamp: {field: at}
fields: {at: timestamp, shop: string, city: string}
pull: {url: "https://shops.example/files", files: "{date}.csv", schedule: "0 24 * * *"}
""",
    "pipelines/broken.yaml": "pipeline: broken\nsources: [orders\n",
    "pipelines/sales.yaml": """\
pipeline: sales
sources: [orders, shops]
steps:
  cities:
    step: select
    depends_on: [shops]
    with: {columns: [shop, cty]}
  joined:
    step: join
    depends_on: [orders, citys]
    with: {keys: [shop], how: lefft}
  totals:
    step: sql
    depends_on: [joined]
    with:
      query: |
        SELECT city, sum(amount AS total
        FROM joined
  loose: {step: filtr, depends_on: [orders], with: {where: amount > 0}}
publish: {step: totals, key: [city]}
""",
}
ALL = [
    "sources/orders.yaml:2:34: timestamp.timezone: no such timezone: 'Europe/Berln' (did you mean Europe/Berlin?)",
    "sources/orders.yaml:4:8: push.bufer: unknown key (did you mean buffer?)",
    "sources/shops.yaml:4:75: pull.schedule: '0 24 * * *': '24' is not a valid hour (examples: *, 0, 0-23, */2, 0,23)",
    "pipelines/broken.yaml:3:1: not readable as YAML: expected ',' or ']', but got '<stream end>' "
    "(while parsing a flow sequence in line 2)",
    "pipelines/sales.yaml:7:28: steps.cities.with.columns: no column 'cty' in shops (did you mean city?)",
    "pipelines/sales.yaml:10:26: steps.joined.depends_on: no source or step 'citys' (did you mean cities?)",
    "pipelines/sales.yaml:11:31: steps.joined.with.how: wrong value: 'lefft' "
    "(expected 'inner', 'left', 'right', 'full', 'semi' or 'anti'; did you mean left?)",
    "pipelines/sales.yaml:17:33: steps.totals.with.query: not readable as SQL: ) is expected near AS",
    "pipelines/sales.yaml:19:3: steps.loose: no step reads it: remove it or publish it",
    "pipelines/sales.yaml:19:17: steps.loose.step: no step 'filtr' (did you mean filter?)",
    "pipelines/sales.yaml:20:25: publish.key: it must contain `date`, the column by which the table is partitioned",
]
OF_STEPS = [line for line in ALL if ".with." in line or "filtr" in line]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return tmp_path


def lines(folder: Path, problems) -> list[str]:
    return [str(problem).removeprefix(f"{folder}/") for problem in problems]


def test_more_than_ten_problems_in_four_files_are_reported_at_once(project):
    assert lines(project, check_project(project).problems) == ALL


def test_a_project_with_problems_is_not_loaded_and_the_error_lists_all(project):
    with pytest.raises(DefinitionError) as failure:
        load_project(project)
    assert str(failure.value).replace(f"{project}/", "").splitlines() == ALL
    with pytest.raises(DefinitionError) as failure:
        load_definitions(project)
    assert str(failure.value).replace(f"{project}/", "").splitlines() == [line for line in ALL if line not in OF_STEPS]
    with pytest.raises(DefinitionError) as failure:
        load_source(project / "sources" / "orders.yaml")
    assert str(failure.value).replace(f"{project}/", "").splitlines() == ALL[:2]


def test_of_one_file_only_its_problems_are_reported_and_sources_that_have_some(project):
    path = project / "pipelines" / "sales.yaml"
    of_sources = [
        f"pipelines/sales.yaml:2:{column}: sources: the source has problems: see {project}/sources/{name}.yaml"
        for name, column in (("orders", 11), ("shops", 19))
    ]
    assert lines(project, check_pipeline(project, path)[1]) == [*of_sources, *ALL[4:]]


def test_a_file_outside_of_the_project_is_checked_as_one_of_its_pipelines(project, tmp_path_factory):
    path = tmp_path_factory.mktemp("drafts") / "sales.yaml"
    path.write_text(FILES["pipelines/sales.yaml"].replace("sources: [orders, shops]", "sources: [order, shops]"))
    _, problems = check_pipeline(project, path)
    assert {problem.file for problem in problems} == {path}
    assert "no source 'order' in this project (did you mean orders?)" in [
        f"{problem.message} (did you mean {problem.suggestion}?)" for problem in problems
    ]


@pytest.mark.parametrize("folder", sorted(path.parent for path in EXAMPLES.glob("*/sources")), ids=lambda p: p.name)
def test_the_examples_have_no_problem(folder, tmp_path_factory):
    with example_package(tmp_path_factory.mktemp("site")):
        checked = check_project(folder)
    assert checked.problems == ()
    assert len(checked.pipelines) == len(list((folder / "pipelines").glob("*.yaml"))) > 0


def test_the_columns_after_a_step_of_another_package_are_not_known(project, tmp_path_factory):
    """Such a step need not state its columns: what follows it is not checked, and what it follows is."""
    (project / "pipelines" / "sales.yaml").write_text("""\
pipeline: sales
sources: [shops]
steps:
  before: {step: select, depends_on: [shops], with: {columns: [at, cty]}}
  other: {step: in_celsius, depends_on: [before], with: {column: cty}}
  after: {step: select, depends_on: [other], with: {columns: [anything]}}
publish: {step: after, key: [date, something]}
""")
    with installed_package(tmp_path_factory.mktemp("packages")):
        _, problems = check_pipeline(project, project / "pipelines" / "sales.yaml")
    found = [(problem.line, problem.place, problem.message) for problem in problems if problem.place != "sources"]
    assert found == [
        (4, "steps.before.with.columns", "no column 'cty' in shops"),
        (7, "publish.key", "no column 'something' in after"),
    ]


@pytest.mark.parametrize(
    ("orders", "pull", "timezone"),
    [
        ("timezone: Europe/Berlin", "", "Europe/Berlin"),
        ("", ", timezone: America/New_York", "America/New_York"),
        ("timezone: UTC", "", None),
        ("", "", None),
    ],
)
def test_a_pipeline_names_its_timezone_if_a_source_has_local_times(project, orders, pull, timezone):
    (project / "sources/orders.yaml").write_text(f"""\
source: orders
timestamp: {{field: at, {orders}}}
fields: {{at: timestamp, shop: string}}
pull: {{url: "https://shops.example/files", files: "{{date}}.csv"{pull}}}
""")
    path = project / "pipelines/sales.yaml"
    steps = "steps: {shops: {step: select, depends_on: [orders], with: {columns: [shop]}}}"
    content = f"pipeline: sales\nsources: [orders]\n{steps}\npublish: {{step: shops, key: [date, shop]}}\n"
    path.write_text(content)
    expected = f"{path}:1:1: timezone: missing: orders has times of {timezone}: add `timezone: {timezone}`, whose days "
    found = [str(problem) for problem in check_pipeline(project, path)[1]]
    assert found == ([f"{expected}are then published, or `timezone: UTC`"] if timezone else [])
    for named in ("UTC", "Europe/Berlin"):
        path.write_text(f"timezone: {named}\n{content}")
        assert check_pipeline(project, path)[1] == ()


def test_a_folder_without_sources_is_no_project(tmp_path):
    remedy = "has no project: change into the folder of the project, or name it with --project DIR"
    for folder, message in ((tmp_path / "none", "no project folder"), (tmp_path, f"^{tmp_path} {remedy}")):
        with pytest.raises(DefinitionError, match=message):
            check_project(folder)
    (tmp_path / "sources").mkdir()
    with pytest.raises(DefinitionError, match="no source is defined there"):
        check_project(tmp_path)
    with pytest.raises(DefinitionError, match="no such file"):
        check_pipeline(tmp_path, tmp_path / "pipelines" / "none.yaml")
