"""What a deployment of a project's files changes: the definitions, and the published days that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from slackwater.errors import SlackwaterError
from slackwater.project.changes import Change, DefinitionChange, changed_definitions, check_renames
from slackwater.project.project import Project

if TYPE_CHECKING:
    from slackwater.runs.record import DayRecord
    from slackwater.runs.table import RunTable

NOTED_DAYS = 100
"""How many days of a pipeline a command looks at before it does something else: their number must not grow with age."""
TableColumns = Callable[[str], Collection[str]]
"""Returns the columns of the published table of this stored name; none if it does not exist."""


class LostDays(NamedTuple):
    """What stays of a removed pipeline, and that no command reaches any more."""

    published: int
    """How many days its table has."""
    on_hold: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a deployment of the project's files changes."""

    changes: tuple[DefinitionChange, ...]
    stale: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By pipeline: published days, in order, that a run would compute otherwise."""
    older: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By pipeline that does not change: published days, in order, that an earlier definition has computed."""
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By pipeline: published days, in order, that would be stale, and whose version a person has kept."""
    lost: Mapping[str, LostDays] = field(default_factory=dict)
    """By removed pipeline."""
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By pipeline that changes: columns of its published table that its rows certainly lack."""
    refused: tuple[str, ...] = ()
    """Why a deployment is refused: definitions that do not fit the stored data, each with the remedy."""

    @property
    def removed(self) -> list[DefinitionChange]:
        """The definitions that are removed."""
        return [change for change in self.changes if change.change is Change.REMOVED]


def make_plan(
    project: Project,
    deployed: Project,
    table: RunTable,
    *,
    pipelines: Collection[str] | None = None,
    table_columns: TableColumns | None = None,
) -> Plan:
    """Return what a deployment of `project` changes in the deployed one.

    All days of all pipelines that change are read, and the latest `NOTED_DAYS` of the others. With `pipelines`, which
    commands pass each time, only the latest `NOTED_DAYS` of those of these that change are. The code of the steps
    counts as unchanged. Columns of tables are compared with `table_columns`. Raises `CloudError`, and `DefinitionError`
    for a name under which the data of a pipeline is not stored.
    """
    check_renames(project, deployed)
    changes = tuple(changed_definitions(project, deployed))
    if not changes and pipelines is not None:
        return Plan(changes=())
    # Commands compare each time, and without changes need not wait for these imports.
    from slackwater.client.days.backfill_plan import FIRST_DATE, LAST_DATE
    from slackwater.runs.run_identity import is_stale

    files, limit = project.model_copy(update={"code": deployed.code}), None if pipelines is None else NOTED_DAYS
    stale, older, kept = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
    lost, lacking = dict[str, LostDays](), dict[str, tuple[str, ...]]()
    asked = deployed.pipelines if pipelines is None else map(project.stored_name, pipelines)
    for name in sorted(deployed.pipelines.keys() & set(asked)):
        is_changed = name in files.pipelines and files.definition_digest(name) != deployed.definition_digest(name)
        if name in files.pipelines and not is_changed and pipelines is not None:
            continue
        most = limit if is_changed or name not in files.pipelines else NOTED_DAYS
        days = table.days(name, FIRST_DATE, LAST_DATE, limit=most, latest_first=True)[::-1]
        published = [day for day in days if day.published]
        if name not in files.pipelines:
            on_hold = sum(day.hold is not None for day in days)
            lost[deployed.present_name(name)] = LostDays(len(published), on_hold=on_hold)
            continue
        found = [day for day in published if day.published and is_stale(day.published.run, files)]
        if not is_changed:
            found = [day for day in found if _is_of_earlier_definition(day, files, table)]
        present = project.present_name(name)
        if dates := tuple(day.date for day in found if not _is_kept(day)):
            (stale if is_changed else older)[present] = dates
        if dates := tuple(day.date for day in found if _is_kept(day)):
            kept[present] = dates
        if is_changed and published and table_columns and (columns := _lacking(files, name, table_columns)):
            lacking[present] = columns
    return Plan(changes=changes, stale=stale, older=older, kept=kept, lost=lost, lacking=lacking)


def _is_kept(day: DayRecord) -> bool:
    """Return whether a person has kept the published version of a day."""
    from slackwater.runs.record import ResolutionAction

    made, published = day.resolution, day.published
    is_kept = made is not None and made.action is ResolutionAction.KEPT
    return is_kept and published is not None and made is not None and made.attempt == published.run.attempt


def _is_of_earlier_definition(day: DayRecord, files: Project, table: RunTable) -> bool:
    """Return whether a stale day was computed by another definition; it may be stale by the code of the steps alone."""
    run = table.run(day.pipeline, day.date, day.published.run.attempt) if day.published else None
    # A run of an older version has no digest.
    return run is not None and run.definition not in {"", files.written_digest(day.pipeline)}


def _lacking(files: Project, name: str, table_columns: TableColumns) -> tuple[str, ...]:
    """Return the columns of a pipeline's table that its rows lack; none if the columns of its rows are not certain."""
    from slackwater.validation.published_columns import published_columns

    rows = published_columns(files, name)
    if rows is None:
        return ()
    try:
        columns = table_columns(name)
    except SlackwaterError:  # only a warning depends on it, and a permission for Glue may be missing
        return ()
    # Spark and Iceberg match column names without regard to case.
    present = {*files.pipeline(name).partition_columns, *map(str.lower, rows)}
    return tuple(column for column in columns if column.lower() not in present)
