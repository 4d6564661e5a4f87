"""Which pipelines and sources have an alarm, and at which value it fires."""

from __future__ import annotations

import pytest

from infra.app import ROOT
from infra.constructs.alarms.alarm_rules import RULES, AlarmGroup, AlarmRule
from infra.constructs.alarms.execution_alarms import execution_alarms
from infra.settings import Settings
from slackwater.local.services.alarms import AlarmDefinition, AlarmState, evaluate
from slackwater.metrics import Metric
from slackwater.project.project import Project, load_project
from tests.infra.assembly import Assembly

pytestmark = pytest.mark.infra

# CloudFormation allows 500 resources in a stack, and a deployment fits so many pipelines and sources.
_MOST_SUBJECTS, _MOST_RESOURCES = 150, 500


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(ROOT / "examples" / "nyc_flights")


def rule(name: str) -> AlarmRule:
    [found] = [rule for rule in RULES if rule.name == name]
    return found


def test_only_a_pipeline_with_a_budget_has_an_alarm_about_it(project: Project) -> None:
    assert rule("budget-spent").thresholds(Settings(), project) == []
    daily = project.pipelines["daily_delays"]
    limited = daily.model_copy(update={"late": daily.late.model_copy(update={"budget_per_day": 2.0})})
    changed = project.model_copy(update={"pipelines": {**project.pipelines, "daily_delays": limited}})
    assert rule("budget-spent").thresholds(Settings(), changed) == [("daily_delays", 100)]


def test_an_alarm_about_cost_adds_up_a_day_and_exists_only_with_its_setting(project: Project) -> None:
    cost = rule("cost-per-day")
    assert cost.thresholds(Settings(), project) == []
    limits = cost.thresholds(Settings(alarm_usd_per_day=2.5), project)
    assert limits == [(name, 2.5) for name in sorted(project.pipelines)]
    period, periods, datapoints = cost.evaluation(project, "daily_delays")
    assert (period.to_days(), periods, datapoints, cost.statistic) == (1, 1, 1, "Sum")


def test_a_data_point_of_a_gauge_that_arrives_five_minutes_late_fires_its_alarm(assembly: Assembly) -> None:
    """Most gauges have one data point a day. An alarm that does not see it misses the day."""
    gauges = {metric.value for metric in Metric if metric.gauge}
    alarms = [item["Properties"] for item in assembly.resources("AWS::CloudWatch::Alarm").values()]
    found = [item for item in alarms if item["MetricName"] in gauges and item["TreatMissingData"] == "ignore"]
    assert len(found) > 10
    for item in found:
        alarm = AlarmDefinition.from_document(item)
        late = int(300 // alarm.period)
        points = [None] * late + [alarm.threshold] * alarm.datapoints_to_alarm
        # CloudWatch documents no range beyond the alarm's own periods.
        assert evaluate(points[: alarm.evaluation_periods], alarm, current=AlarmState.OK) is AlarmState.ALARM
        cleared = [None] * late + [alarm.threshold - 1]
        assert evaluate(cleared[: alarm.evaluation_periods], alarm, current=AlarmState.ALARM) is AlarmState.OK


def test_an_alarm_about_the_queue_of_spark_jobs_has_the_limit_of_the_settings(project: Project) -> None:
    assert dict(rule("spark-queued").thresholds(Settings(), project)) == dict.fromkeys(project.pipelines, 60)
    fewer = rule("spark-queued").thresholds(Settings(alarm_queue_minutes=5), project)
    assert {limit for _, limit in fewer} == {5}


def test_a_source_that_no_pipeline_reads_has_no_usual_silence_and_no_normal_reject_rate(project: Project) -> None:
    more = project.model_copy(update={"sources": {**project.sources, "tides": project.source("weather")}})
    assert rule("partner-unusually-silent").thresholds(Settings(), more) == [("flights", 150), ("weather", 150)]
    assert rule("rejects-unusual").thresholds(Settings(), more) == [("flights", 5), ("weather", 5)]


def test_every_state_machine_but_the_monitor_has_an_alarm_about_failed_executions(project: Project) -> None:
    pipelines = [f"pipeline-{name}" for name in sorted(project.pipelines)]
    machines = [alarm.machine for alarm in execution_alarms(project)]
    assert machines == [*pipelines, "pull-source", "compare-day", "backfill"]


@pytest.mark.parametrize("group", list(AlarmGroup))
def test_a_stack_has_room_for_the_alarms_of_150_pipelines_and_sources(group: AlarmGroup) -> None:
    of_each_subject = sum(rule.group is group for rule in RULES)
    more = {AlarmGroup.RUNS: 1, AlarmGroup.EXECUTIONS: 1}  # `monitor-missing`, and `execution-failed`
    resources = (of_each_subject + more.get(group, 0)) * _MOST_SUBJECTS + 3  # the shared state machines
    # A source that is read, pulled and recorded has more alarms than fit for 150: it was so when the stack was created.
    assert resources <= (_MOST_RESOURCES if group is not AlarmGroup.SOURCES else 4 * _MOST_SUBJECTS + 3)
