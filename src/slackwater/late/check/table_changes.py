"""Changed days of other pipelines that a pipeline reads: `on_change` of the table decides whether they count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater.late.check.decision import DecisionRule, TableChange
from slackwater.late.check.describe import describe_late_data, describe_lost
from slackwater.pipeline.table_inputs import OnChange, TableInput
from slackwater.runs.inputs.difference import SourceDifference
from slackwater.runs.inputs.manifest import InputManifest


def deciding_inputs(
    differences: Sequence[SourceDifference], tables: Mapping[str, TableInput]
) -> list[SourceDifference]:
    """Return the differences of all inputs except the tables whose changes decide nothing."""
    return [source for source in differences if source.source not in tables or tables[source.source].decides]


def notified_changes(
    before: InputManifest, now: InputManifest, tables: Mapping[str, TableInput]
) -> tuple[TableChange, ...]:
    """Return the changed days of the tables with `on_change: notify`, by table and day.

    `before` are the inputs of the published run, and `tables` those that are days of other pipelines.
    """
    changes = []
    for table in sorted(name for name, item in tables.items() if item.on_change == "notify"):
        old, new = ({item.file or "": item for item in each.of_source(table)} for each in (before, now))
        for day in sorted(old.keys() | new.keys()):
            earlier, later = old.get(day), new.get(day)
            version = later.etag if later else ""
            if version != (earlier.etag if earlier else ""):
                rows = {"rows_before": earlier.rows if earlier else 0, "rows_now": later.rows if later else 0}
                changes.append(TableChange(table=table, day=day, version=version, **rows))
    return tuple(changes)


def rule_of_tables(
    pipeline: str, date: str, differences: Sequence[SourceDifference], tables: Mapping[str, TableInput]
) -> tuple[DecisionRule, list[str]] | None:
    """Return the rule that `on_change` of the day's changed tables leads to, with its reasons; None without one.

    `TABLE_CHANGED` has the remedy as its last reason. It precedes `TABLE_NOTIFIED`, and that `TABLE_IGNORED`. These two
    apply only to a day without any other change.
    """
    held = _changes(differences, tables, "hold")
    if held:
        command = f"slackwater late release {pipeline} --date {date} --reason TEXT"
        return DecisionRule.TABLE_CHANGED, [*held, f"`{command}` runs the day again"]
    notified, ignored = (_changes(differences, tables, choice) for choice in ("notify", "ignore"))
    if notified:
        return DecisionRule.TABLE_NOTIFIED, [*notified, *ignored]
    return (DecisionRule.TABLE_IGNORED, ignored) if ignored else None


def _changes(differences: Sequence[SourceDifference], tables: Mapping[str, TableInput], wanted: OnChange) -> list[str]:
    """Return a reason for each type of change of the tables with `wanted`."""
    return [
        f"{change}: tables.{source.source}.on_change is {wanted}"
        for source in differences
        if source.source in tables and tables[source.source].on_change == wanted
        for change in (
            *describe_lost(source),
            *([describe_late_data(source)] if source.late.objects else []),
        )
    ]
