"""The composite alarms: which alarms have one cause, and page once for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.settings import Settings
from slackwater.project.project import Project

# CloudWatch allows 100 alarms, 500 elements and 10,240 characters in a rule. The names of 100 alarms fit: a prefix and
# a pipeline have 70 characters together at most, because the name of the state machine has 80.
MAX_CHILDREN = 100
_MOST_READERS = 8


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


@dataclass(frozen=True, kw_only=True)
class Composite:
    """One composite alarm of a deployment."""

    name: str
    """Its name, with the prefix."""
    children: Sequence[str]
    """The full names of its alarms."""
    description: str

    @property
    def alarm_rule(self) -> str:
        """The expression that CloudWatch evaluates."""
        return " OR ".join(f'ALARM("{child}")' for child in self.children)


def composites(settings: Settings, project: Project, alarms: Sequence[str]) -> Iterator[Composite]:
    """Return the composite alarms over the alarms with these full names."""
    pipelines, existing = sorted(project.pipelines), set(alarms)
    for rule in COMPOSITES:
        for subjects in [[pipeline] for pipeline in pipelines] if rule.each_pipeline else [["", *pipelines]]:
            names = {
                alarm: [settings.named(f"{alarm}-{subject}".removesuffix("-")) for subject in subjects]
                for alarm in rule.alarms
            }
            children = [name for group in names.values() for name in group if name in existing]
            present = [alarm for alarm, group in names.items() if existing.intersection(group)]
            for number, first in enumerate(range(0, len(children), MAX_CHILDREN), start=1):
                suffix = f"-{subjects[0]}" if rule.each_pipeline else f"-{number}" if number > 1 else ""
                yield Composite(
                    name=settings.named(f"{rule.name}{suffix}"),
                    children=children[first : first + MAX_CHILDREN],
                    description=_describe(rule, subjects[0], present, prefix=settings.prefix),
                )


def readers(project: Project, source: str) -> str:
    """Return the pipelines that read a source, for the description of its alarm, which has 1,024 characters at most."""
    names = [name for name, pipeline in sorted(project.pipelines.items()) if source in pipeline.sources]
    more = len(names) - _MOST_READERS
    return ", ".join(names[:_MOST_READERS]) + (f" and {more} more" if more > 0 else "")


def _describe(rule: CompositeRule, subject: str, alarms: Sequence[str], *, prefix: str) -> str:
    runbooks = " or ".join(f"docs/runbooks/{alarm}.md" for alarm in alarms)
    return (
        f"{rule.description.format(subject=subject)} Look: the reason of the state names the alarm that fired first. "
        f"What to do: {runbooks}. Other alarms of this composite alarm send nothing until all of them are OK. "
        f"Severity: page. Prefix: {prefix}."
    )
