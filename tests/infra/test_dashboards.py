"""The dashboards of pipelines and sources, and the metrics that dashboards and alarms name."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from infra.app import ROOT
from infra.constructs.alarms.cloudwatch_metrics import QueueNames
from infra.constructs.operators import Dashboard, place_rows
from infra.settings import Settings
from infra.stacks.dashboards import SubjectDashboardsStack
from slackwater.errors import DefinitionError
from slackwater.metrics import Metric, Subject
from slackwater.project.project import Project, load_project
from tests.infra.assembly import Assembly, parts_of
from tests.infra.rights import resource_name

pytestmark = pytest.mark.infra

NAMESPACE = "Slackwater/slackwater"


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(ROOT / "examples" / "nyc_flights")


@pytest.fixture(scope="module")
def dashboards(scheduled: Assembly) -> dict[str, list[dict[str, Any]]]:
    """The widgets of each dashboard, by its name."""
    found = {}
    for resource in scheduled.resources("AWS::CloudWatch::Dashboard").values():
        properties = resource["Properties"]
        found[properties["DashboardName"]] = json.loads(resource_name(properties["DashboardBody"]))["widgets"]
    return found


def lines(widgets: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield each metric of a dashboard: namespace, name and dimensions."""
    for widget in widgets:
        for namespace, name, *rest in widget["properties"].get("metrics", []):
            of = [part for part in rest if isinstance(part, str)]
            yield namespace, name, dict(zip(of[::2], of[1::2], strict=True))


def test_each_pipeline_and_each_source_has_a_dashboard_by_setting(
    dashboards: dict[str, Any], assembly: Assembly, project: Project
) -> None:
    of = {*(f"pipeline-{name}" for name in project.pipelines), *(f"source-{name}" for name in project.sources)}
    assert set(dashboards) == {"slackwater", *(f"slackwater_{name}" for name in of)}
    assert len(assembly.resources("AWS::CloudWatch::Dashboard")) == 1


def test_the_dashboard_of_operators_keeps_its_logical_id(assembly: Assembly) -> None:
    # Another one would be created before the old one is deleted, with the same name.
    assert list(assembly.resources("AWS::CloudWatch::Dashboard")) == ["OverviewDashboard78DADE12"]


def test_a_dashboard_of_a_pipeline_shows_all_of_its_metrics_and_alarms(
    dashboards: dict[str, Any], project: Project, scheduled: Assembly
) -> None:
    for name in project.pipelines:
        widgets = dashboards[f"slackwater_pipeline-{name}"]
        own = [(metric, of) for namespace, metric, of in lines(widgets) if namespace == NAMESPACE]
        assert sorted(own) == sorted((m.value, {"pipeline": name}) for m in Metric if m.subject is Subject.PIPELINE)
        machines = {
            of["StateMachineArn"].split(":")[-1] for namespace, _, of in lines(widgets) if "States" in namespace
        }
        assert machines == {f"slackwater-pipeline-{name}"}
        shown = {arn.rpartition(":")[2] for widget in widgets for arn in widget["properties"].get("alarms", [])}
        created = scheduled.resources("AWS::CloudWatch::Alarm").values()
        existing = {alarm["Properties"]["AlarmName"] for alarm in created}
        assert shown == {alarm for alarm in existing if alarm.endswith(f"-{name}")}


@pytest.mark.parametrize(("source", "pulled"), [("flights", True), ("weather", False)])
def test_a_dashboard_of_a_source_shows_its_metrics_and_its_events_from_the_logs(
    dashboards: dict[str, Any], source: str, pulled: bool
) -> None:
    widgets = dashboards[f"slackwater_source-{source}"]
    of_source = {metric for metric in Metric if metric.subject is Subject.SOURCE}
    checked = {Metric.HOURS_SINCE_ARRIVAL, Metric.SILENCE_PERCENT, Metric.REJECTED_PERCENT_ABOVE_NORMAL}
    expected = {m for m in of_source if m.has_dimension and (pulled or m in checked)}
    assert {(name, tuple(of.items())) for _, name, of in lines(widgets)} == {
        (metric.value, (("source", source),)) for metric in expected
    }
    [query] = [widget["properties"]["query"] for widget in widgets if widget["type"] == "log"]
    assert f"filter source = '{source}'" in query
    assert {metric for metric in of_source if f"sum({metric.value})" in query} == {
        metric for metric in of_source if not metric.has_dimension
    }


def emitted() -> set[str]:
    """Return the names of the members of `Metric` that the code names where it puts a metric."""
    files = [path for path in (ROOT / "src").rglob("*.py") if path.name != "metrics.py"]
    found = set()
    for path in (*files, *(ROOT / "lambdas").glob("*.py")):
        if "Metric." in (text := path.read_text(encoding="utf-8")):
            found |= {name for node in ast.walk(ast.parse(text, Path(path).name)) if (name := _member(node))}
    return found


def _member(node: ast.AST) -> str | None:
    """Return `NAME` for the expression `Metric.NAME`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Metric":
        return node.attr
    return None


def test_dashboards_and_alarms_name_the_metrics_that_the_code_puts_and_no_others(
    dashboards: dict[str, Any], scheduled: Assembly
) -> None:
    names = {Metric[name].value for name in emitted()}
    assert names == {metric.value for metric in Metric}
    graphs = {
        name for widgets in dashboards.values() for namespace, name, _ in lines(widgets) if namespace == NAMESPACE
    }
    assert graphs == names
    properties = [alarm["Properties"] for alarm in scheduled.resources("AWS::CloudWatch::Alarm").values()]
    assert {alarm["MetricName"] for alarm in properties if alarm["Namespace"] == NAMESPACE} <= names


def numbered(count: int) -> dict[Subject, list[str]]:
    return {subject: [f"{subject}_{number}" for number in range(count)] for subject in Subject}


def services(count: int) -> int:
    """Return more metrics of AWS services than a deployment of so many pipelines has."""
    return 2 * (count + 4) + 100


def test_the_dashboards_for_operators_fit_150_pipelines_and_150_sources() -> None:
    """The quotas of CloudWatch's user guide: 500 metrics of a widget, and 2,500 of a dashboard."""
    assert place_rows(numbered(100), services(100))[1] == ()
    placed = place_rows(numbered(150), services(150))
    metrics = [metric for rows in placed for row in rows for _, metric, _ in row]
    assert sorted(metrics) == sorted(Metric)
    for rows, more in zip(placed, (services(150), 0), strict=True):
        of_rows = [metric for row in rows for _, metric, _ in row]
        assert sum(150 if metric.has_dimension else 1 for metric in of_rows) + more <= 2500


def test_more_pipelines_than_the_dashboards_show_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"400 pipelines and 400 sources do not fit .* divide the project"):
        place_rows(numbered(400), services(400))


def test_a_second_dashboard_shows_what_does_not_fit_the_first_one(
    project: Project, monkeypatch: pytest.MonkeyPatch, dashboards: dict[str, Any]
) -> None:
    monkeypatch.setattr("infra.constructs.operators._MAX_METRICS", 60)
    stack = Stack(App(), "stack")
    queues = QueueNames(dead_letters="a", events="b", event_dead_letters="c", arrivals="d", arrival_dead_letters="e")
    names: dict[str, Any] = {"alarms": ["any"], "functions": ["f"], "machines": ["m"], "application_id": "id"}
    Dashboard(stack, "Overview", settings=Settings(), project=project, queues=queues, **names)
    created = Template.from_stack(stack).find_resources("AWS::CloudWatch::Dashboard").values()
    bodies = {
        dashboard["Properties"]["DashboardName"]: json.loads(resource_name(dashboard["Properties"]["DashboardBody"]))
        for dashboard in created
    }
    assert set(bodies) == {"slackwater", "slackwater_lateness"}
    own = [
        (name, tuple(of.items()))
        for body in bodies.values()
        for namespace, name, of in lines(body["widgets"])
        if namespace == NAMESPACE
    ]
    together = [
        (name, tuple(of.items())) for namespace, name, of in lines(dashboards["slackwater"]) if namespace == NAMESPACE
    ]
    assert sorted(own) == sorted(together)


def test_the_dashboards_of_150_pipelines_with_the_longest_names_fit_a_template(project: Project) -> None:
    """CloudFormation allows 1 MB. The size grows by the same for each pipeline."""
    sizes = []
    for count in (1, 2):
        names = [f"pipeline_{number:03}_{'x' * 33}" for number in range(count)]
        # A pipeline with a budget has all alarms.
        daily = project.pipeline("daily_delays")
        limited = daily.model_copy(update={"late": daily.late.model_copy(update={"budget_per_day": 1.0})})
        large = project.model_copy(update={"pipelines": dict.fromkeys(names, limited)})
        app = App()
        settings = Settings(prefix="p" * 24, alarm_usd_per_day=1.0)
        stack = SubjectDashboardsStack(app, "pipeline", parts_of(settings, large))
        sizes.append((Path(app.synth().directory) / stack.template_file).stat().st_size)
    first, second = sizes
    assert first + 149 * (second - first) <= 1_000_000
