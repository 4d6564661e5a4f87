"""The composite alarms: which alarms have one cause, and page once for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.alarms.alarm_rules import alarm_names
from infra.settings import Settings
from slackwater.project.project import Project

COMPOSITE_STACK = "composite-alarms"
# CloudWatch allows 100 alarms, 500 elements and 10,240 characters in a rule. The names of 100 alarms fit: a prefix and
# a pipeline have 70 characters together at most, because the name of the state machine has 80.
MAX_CHILDREN = 100


@dataclass(frozen=True, kw_only=True)
class CompositeRule:
    """A composite alarm. It is in ALARM while at least one of its alarms is."""

    name: str
    alarms: tuple[str, ...]
    """Names of alarms, without the prefix and the pipeline. They have no action of their own, and they page."""
    each_pipeline: bool
    """Whether there is one for each pipeline, or one for the deployment."""
    description: str
    """What has happened. `{subject}` is the pipeline."""


COMPOSITES = (
    # The run of a day fails, with its execution, and then the day's deadline passes. A silent source is no cause of
    # that: a day without data is published without rows, unless a rule of the pipeline fails.
    CompositeRule(
        name="pipeline",
        alarms=("run-failed", "execution-failed", "day-overdue"),
        each_pipeline=True,
        description="{subject} does not publish a day.",
    ),
    # The monitor fails for all pipelines, or nothing starts it, and a day later the checks of all of them are missing.
    CompositeRule(
        name="monitor",
        alarms=("monitor-failed", "monitor-missing"),
        each_pipeline=False,
        description="Days are not checked, of one pipeline or of several.",
    ),
    # The events of a batch that cannot be stored wait first, and become dead letters after five attempts.
    CompositeRule(
        name="events",
        alarms=("events-waiting", "event-dead-letters"),
        each_pipeline=False,
        description="Accepted events are not stored.",
    ),
)
COVERED = frozenset(alarm for rule in COMPOSITES for alarm in rule.alarms)
"""The alarms that notify through a composite alarm."""


class Composite(NamedTuple):
    """One composite alarm of a deployment."""

    name: str
    """Its name, with the prefix."""
    children: Sequence[str]
    """The full names of its alarms."""
    description: str


def composites(settings: Settings, project: Project) -> Iterator[Composite]:
    """Yield the composite alarms of a deployment."""
    pipelines, existing = sorted(project.pipelines), set(alarm_names(settings, project))
    for rule in COMPOSITES:
        for subjects in [[pipeline] for pipeline in pipelines] if rule.each_pipeline else [["", *pipelines]]:
            names = {
                alarm: [settings.named(f"{alarm}-{subject}".removesuffix("-")) for subject in subjects]
                for alarm in rule.alarms
            }
            children = [name for group in names.values() for name in group if name in existing]
            present = [alarm for alarm, group in names.items() if existing.intersection(group)]
            runbooks = " or ".join(f"docs/runbooks/{alarm}.md" for alarm in present)
            description = (
                f"{rule.description.format(subject=subjects[0])} Look: the reason of the state names the alarm that "
                f"fired first. What to do: {runbooks}. Other alarms of this composite alarm send nothing until all of "
                f"them are OK. Severity: page. Prefix: {settings.prefix}."
            )
            for number, first in enumerate(range(0, len(children), MAX_CHILDREN), start=1):
                suffix = f"-{subjects[0]}" if rule.each_pipeline else f"-{number}" if number > 1 else ""
                name = settings.named(f"{rule.name}{suffix}")
                yield Composite(name, children[first : first + MAX_CHILDREN], description)


def count_alarms(settings: Settings, project: Project) -> int:
    """Return how many alarms a deployment has, with composite alarms."""
    return len(alarm_names(settings, project)) + sum(1 for _ in composites(settings, project))


def own_alarms(stack: Stack) -> dict[str, cloudwatch.CfnAlarm]:
    """Return the alarms of a stack that are no composite alarms, by full name."""
    found = [node for node in stack.node.find_all() if isinstance(node, cloudwatch.CfnAlarm)]
    return {alarm.alarm_name: alarm for alarm in found if alarm.alarm_name}


class CompositeAlarms(Construct):
    """The composite alarms of a deployment, which notify the topic of pages.

    CloudWatch creates no composite alarm before the alarms in its rule, and deletes no alarm before it. So add them
    after the alarms of the same stack, and deploy their stack after all others that have alarms.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, project: Project, topic: sns.ITopic) -> None:
        super().__init__(scope, id_)
        own = own_alarms(Stack.of(self))
        for composite in composites(settings, project):
            alarm = cloudwatch.CompositeAlarm(
                self,
                composite.name.removeprefix(f"{settings.prefix}-"),
                composite_alarm_name=composite.name,
                alarm_description=composite.description,
                # By name: a reference would be an export of each alarm's stack.
                alarm_rule=cloudwatch.AlarmRule.from_string(
                    " OR ".join(f'ALARM("{child}")' for child in composite.children)
                ),
            )
            alarm.add_alarm_action(actions.SnsAction(topic))
            alarm.node.add_dependency(*[own[child] for child in composite.children if child in own])
