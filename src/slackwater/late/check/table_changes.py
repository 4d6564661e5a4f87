"""Changed days of other pipelines that a pipeline reads: `on_change` of the table decides whether they count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater.late.check.decision import DecisionRule
from slackwater.late.check.describe import describe_late_data, describe_lost
from slackwater.pipeline.table_inputs import OnChange
from slackwater.runs.inputs.difference import SourceDifference


def deciding_inputs(
    differences: Sequence[SourceDifference], on_change: Mapping[str, OnChange]
) -> list[SourceDifference]:
    """Return the differences of all inputs except the tables whose changes are ignored."""
    return [source for source in differences if on_change.get(source.source) != "ignore"]


def rule_of_tables(
    pipeline: str, date: str, differences: Sequence[SourceDifference], on_change: Mapping[str, OnChange]
) -> tuple[DecisionRule, list[str]] | None:
    """Return the rule that `on_change` of the day's changed tables leads to, with its reasons; None without one.

    `TABLE_CHANGED` has the remedy as its last reason. It precedes `TABLE_IGNORED`, which applies only to a day without
    any other change.
    """
    held = _changes(differences, on_change, "hold")
    if held:
        command = f"slackwater late release {pipeline} --date {date} --reason TEXT"
        return DecisionRule.TABLE_CHANGED, [*held, f"`{command}` runs the day again"]
    ignored = _changes(differences, on_change, "ignore")
    return (DecisionRule.TABLE_IGNORED, ignored) if ignored else None


def _changes(differences: Sequence[SourceDifference], on_change: Mapping[str, OnChange], wanted: OnChange) -> list[str]:
    """Return a reason for each type of change of the tables with `wanted`."""
    return [
        f"{change}: tables.{source.source}.on_change is {wanted}"
        for source in differences
        if on_change.get(source.source) == wanted
        for change in (
            *describe_lost(source),
            *([describe_late_data(source)] if source.late.objects else []),
        )
    ]
