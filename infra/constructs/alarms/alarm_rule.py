"""What an alarm watches, and when it fires."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.constructs.alarms import subjects
from infra.constructs.alarms.cloudwatch_metrics import AwsMetric
from infra.constructs.alarms.subjects import Evaluation
from infra.settings import Settings
from slackwater.metrics import Metric
from slackwater.project.project import Project


class Severity(StrEnum):
    """How soon somebody has to look at an alarm."""

    PAGE = "page"
    """Now: a published table is missing, or events may be lost."""
    WARNING = "warning"
    """On the next working day."""


class AlarmGroup(StrEnum):
    """The rules whose alarms one stack creates if there are too many for the monitoring stack, by the stack's name.

    CloudFormation allows 500 resources in a stack. The group of a rule never changes: an alarm that moves to the stack
    of another group would be created there before it is deleted here, and CloudFormation refuses a name that exists.
    """

    RUNS = "run-alarms"
    LATE_DATA = "late-alarms"
    OLDER_DATA = "older-alarms"
    SOURCES = "source-alarms"
    UNUSUAL = "unusual-alarms"
    """What differs from the past of a source, or from what its partner reports."""
    SPENDING = "spending-alarms"
    """Budgets, cost, and capacity of Spark jobs."""
    EXECUTIONS = "execution-alarms"


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """An alarm that exists once for the deployment, or for each of its pipelines, sources or state machines."""

    name: str
    group: AlarmGroup | None = None
    """None for an alarm that exists once for the deployment: the monitoring stack has it."""
    metric: Metric | AwsMetric
    of: str = ""
    """The queue or the state machine of a metric of AWS, without the deployment's prefix; may contain `{subject}`."""
    severity: Severity
    description: str
    """What has happened, where to look and what to do. `{subject}` is the pipeline or source, `{pipelines}` those that
    read the source. The page `docs/runbooks/NAME.md` has the details."""
    subjects: Callable[[Settings, Project], subjects.Subjects] = subjects.pipelines
    statistic: str = ""
    """By default the sum of a counter, and the maximum of a gauge."""
    threshold: float = 1
    """The alarm fires at this value and above, unless the subject has a limit of its own."""
    comparison: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
    evaluate: Callable[[Project, str], Evaluation] | None = None
    """By default, the latest data point is enough."""
    missing_data: cloudwatch.TreatMissingData | None = None
    """By default `IGNORE` for a gauge, whose last value stays valid until a check or a pull puts the next one, and
    `NOT_BREACHING` for a counter, which has no data when nothing happened."""

    def alarm_name(self, subject: str) -> str:
        """Return the name of the alarm of a pipeline or source, without the deployment's prefix."""
        return f"{self.name}-{subject}" if subject else self.name

    def thresholds(self, settings: Settings, project: Project) -> list[tuple[str, float]]:
        """Return each subject that has this alarm, with its threshold: the alarm fires at it and above."""
        found = self.subjects(settings, project) if self.group else {"": None}
        return [(subject, self.threshold if own is None else own) for subject, own in found.items()]

    def evaluation(self, project: Project, subject: str) -> Evaluation:
        """Return which data points count."""
        if self.evaluate:
            return self.evaluate(project, subject)
        if isinstance(self.metric, AwsMetric):
            return Evaluation()
        return subjects.OF_GAUGES if self.metric.gauge else Evaluation(datapoints=1)
