"""The dashboards, and the metrics that dashboards and alarms name."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from infra.app import ROOT
from infra.constructs.operators import Dashboard, place_rows
from infra.settings import Settings
from infra.stacks.dashboards import SubjectDashboardsStack
from slackwater.errors import DefinitionError
from slackwater.metrics import Metric, Subject
from slackwater.project.project import Project
from tests.infra.assembly import Assembly, parts_of
from tests.infra.rights import resource_name

pytestmark = pytest.mark.infra

NAMESPACE = "Slackwater/slackwater"
_AWS_METRICS = {
    "AWS/Lambda": ({"Errors"}, ("FunctionName",)),
    "AWS/SQS": ({"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"}, ("QueueName",)),
    "AWS/States": ({"ExecutionsFailed", "ExecutionsAborted"}, ("StateMachineArn",)),
    "AWS/EMRServerless": (
        {"SubmittedJobs", "PendingJobs", "RunningJobs", "SuccessJobs", "FailedJobs", "CancelledJobs"},
        ("ApplicationId", "ApplicationName"),
    ),
}
"""Metrics of AWS services, with their dimensions."""
Line = tuple[str, str, tuple[tuple[str, str], ...]]
"""A metric of a dashboard: namespace, name and dimensions."""


def widgets_of(dashboards: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The widgets of each dashboard, by its name."""
    bodies = {name: json.loads(resource_name(of["DashboardBody"])) for name, of in dashboards.items()}
    return {name: body["widgets"] for name, body in bodies.items()}


@pytest.fixture(scope="module")
def dashboards(scheduled: Assembly) -> dict[str, list[dict[str, Any]]]:
    return widgets_of(scheduled.properties("AWS::CloudWatch::Dashboard", "DashboardName"))


@pytest.fixture(scope="module")
def operators(assembly: Assembly) -> list[dict[str, Any]]:
    """The widgets of the dashboard for operators."""
    # With another logical id, it would be created before the old one is deleted, with the same name.
    assert list(assembly.resources("AWS::CloudWatch::Dashboard")) == ["OverviewDashboard78DADE12"]
    return widgets_of(assembly.properties("AWS::CloudWatch::Dashboard", "DashboardName"))["slackwater"]


def lines(widgets: list[dict[str, Any]]) -> list[Line]:
    found = []
    for widget in widgets:
        for namespace, name, *rest in widget["properties"].get("metrics", []):
            of = [part for part in rest if isinstance(part, str)]
            found.append((namespace, name, tuple(zip(of[::2], of[1::2], strict=True))))
    return found


def own(widgets: list[dict[str, Any]]) -> Counter[Line]:
    return Counter(line for line in lines(widgets) if line[0] == NAMESPACE)


def of(subject: Subject, names: Any, metrics: Any = Metric) -> Counter[Line]:
    """Each of the metrics about this kind of subject, for each of these."""
    found = [metric for metric in metrics if metric.subject is subject and metric.has_dimension]
    return Counter((NAMESPACE, metric.value, ((subject.value, name),)) for metric in found for name in names)


def shown_alarms(widgets: list[dict[str, Any]]) -> list[str]:
    return [arn.rpartition(":alarm:")[2] for widget in widgets for arn in widget["properties"].get("alarms", [])]


def test_the_dashboard_shows_every_metric_of_every_pipeline_or_source_or_in_total(
    operators: list[dict[str, Any]], project: Project
) -> None:
    totals = Counter((NAMESPACE, metric.value, ()) for metric in Metric if not metric.has_dimension)
    each = of(Subject.PIPELINE, project.pipelines) + of(Subject.SOURCE, project.sources)
    assert own(operators) == each + totals


def test_the_dashboard_shows_every_function_state_machine_and_queue(
    operators: list[dict[str, Any]], assembly: Assembly
) -> None:
    shown: dict[str, set[str]] = {}
    for namespace, name, dimensions in lines(operators):
        if namespace != NAMESPACE:
            known, by = _AWS_METRICS[namespace]
            assert (name in known, tuple(key for key, _ in dimensions)) == (True, by)
            shown.setdefault(namespace, set()).add(dimensions[0][1].rpartition(":")[2])
    assert shown.keys() == _AWS_METRICS.keys()
    assert shown["AWS/Lambda"] == set(assembly.properties("AWS::Lambda::Function", "FunctionName"))
    assert shown["AWS/States"] == set(assembly.machines())
    assert len(shown["AWS/SQS"]) == len(assembly.resources("AWS::SQS::Queue"))


@pytest.mark.parametrize("name", ["assembly", "scheduled"])
def test_the_dashboard_shows_every_alarm(name: str, request: pytest.FixtureRequest) -> None:
    synthesised: Assembly = request.getfixturevalue(name)
    widgets = widgets_of(synthesised.properties("AWS::CloudWatch::Dashboard", "DashboardName"))["slackwater"]
    assert sorted(shown_alarms(widgets)) == sorted(synthesised.properties("AWS::CloudWatch::Alarm", "AlarmName"))


def test_each_pipeline_and_each_source_has_a_dashboard_by_setting(
    dashboards: dict[str, Any], project: Project, scheduled: Assembly
) -> None:
    subjects = [*(f"pipeline-{name}" for name in project.pipelines), *(f"source-{name}" for name in project.sources)]
    assert set(dashboards) == {"slackwater", *(f"slackwater_{name}" for name in subjects)}
    existing = scheduled.properties("AWS::CloudWatch::Alarm", "AlarmName")
    for name in subjects:
        ours = {alarm for alarm in existing if alarm.endswith(f"-{name.partition('-')[2]}")}
        assert set(shown_alarms(dashboards[f"slackwater_{name}"])) == ours


def test_a_dashboard_of_a_pipeline_shows_all_of_its_metrics(dashboards: dict[str, Any], project: Project) -> None:
    for name in project.pipelines:
        widgets = dashboards[f"slackwater_pipeline-{name}"]
        assert own(widgets) == of(Subject.PIPELINE, [name])
        [machine] = [dimensions[0][1] for namespace, _, dimensions in lines(widgets) if namespace == "AWS/States"]
        assert machine.endswith(f":slackwater-pipeline-{name}")


@pytest.mark.parametrize(("source", "pulled"), [("flights", True), ("weather", False)])
def test_a_dashboard_of_a_source_shows_its_metrics_and_its_events_from_the_logs(
    dashboards: dict[str, Any], source: str, pulled: bool
) -> None:
    widgets = dashboards[f"slackwater_source-{source}"]
    checked = {Metric.HOURS_SINCE_ARRIVAL, Metric.SILENCE_PERCENT, Metric.REJECTED_PERCENT_ABOVE_NORMAL}
    checked.add(Metric.EVENTS_MISSING)
    assert own(widgets) == of(Subject.SOURCE, [source], Metric if pulled else checked)
    [query] = [widget["properties"]["query"] for widget in widgets if widget["type"] == "log"]
    assert f"filter source = '{source}'" in query
    counted = {metric for metric in Metric if metric.subject is Subject.SOURCE and not metric.has_dimension}
    assert {metric for metric in Metric if f"sum({metric.value})" in query} == counted


def emitted() -> set[str]:
    """The names of the members of `Metric` that the code names where it puts a metric."""
    files = [path for path in (ROOT / "src").rglob("*.py") if path != ROOT / "src" / "slackwater" / "metrics.py"]
    nodes = (
        node
        for path in (*files, *(ROOT / "lambdas").glob("*.py"))
        if "Metric." in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
    )
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Metric"
    }


def test_dashboards_and_alarms_name_the_metrics_that_the_code_puts_and_no_others(
    dashboards: dict[str, Any], scheduled: Assembly
) -> None:
    names = {Metric[name].value for name in emitted()}
    assert names == {metric.value for metric in Metric}
    assert {name for widgets in dashboards.values() for _, name, _ in own(widgets)} == names
    alarms = scheduled.properties("AWS::CloudWatch::Alarm").values()
    assert {alarm["MetricName"] for alarm in alarms if alarm["Namespace"] == NAMESPACE} <= names


def numbered(count: int) -> dict[Subject, list[str]]:
    return {subject: [f"{subject}_{number}" for number in range(count)] for subject in Subject}


def services(count: int) -> int:
    """Return more metrics of AWS services than a deployment of so many pipelines has."""
    return 2 * (count + 4) + 100


def test_the_dashboards_for_operators_fit_150_pipelines_and_150_sources() -> None:
    """The quotas of CloudWatch's user guide: 500 metrics of a widget, and 2,500 of a dashboard."""
    assert place_rows(numbered(99), services(99))[1] == ()
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
    project: Project, monkeypatch: pytest.MonkeyPatch, operators: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr("infra.constructs.operators._MAX_METRICS", 60)
    stack = Stack(App(), "stack")
    names = (
        *("dead-letters", "events", "event-dead-letters"),
        *("arrivals", "arrival-dead-letters", "states", "state-dead-letters"),
    )
    more: dict[str, Any] = {"alarms": ["any"], "functions": ["f"], "machines": ["m"], "application_id": "id"}
    queues = dict.fromkeys(names, "any")
    Dashboard(stack, "Overview", settings=Settings(), project=project, queues=queues, **more)
    created = Template.from_stack(stack).find_resources("AWS::CloudWatch::Dashboard").values()
    bodies = widgets_of({item["Properties"]["DashboardName"]: item["Properties"] for item in created})
    assert set(bodies) == {"slackwater", "slackwater_lateness"}
    assert own([widget for widgets in bodies.values() for widget in widgets]) == own(operators)


def test_the_dashboards_of_150_pipelines_with_the_longest_names_fit_a_template(project: Project) -> None:
    """CloudFormation allows 1 MB. The size grows by the same for each pipeline."""
    sizes = []
    # A pipeline with a budget has all alarms.
    daily = project.pipeline("daily_delays")
    limited = daily.model_copy(update={"late": daily.late.model_copy(update={"budget_per_day": 1.0})})
    for count in (1, 2):
        names = [f"pipeline_{number:03}_{'x' * 33}" for number in range(count)]
        large = project.model_copy(update={"pipelines": dict.fromkeys(names, limited)})
        app, settings = App(), Settings(prefix="p" * 24, alarm_usd_per_day=1.0)
        stack = SubjectDashboardsStack(app, "pipeline", parts_of(settings, large))
        sizes.append((Path(app.synth().directory) / stack.template_file).stat().st_size)
    first, second = sizes
    assert first + 149 * (second - first) <= 1_000_000
