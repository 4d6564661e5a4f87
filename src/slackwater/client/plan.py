"""What a deployment of a project's files changes: the definitions, and the published days that depend on them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from slackwater.project.changes import Change, DefinitionChange, changed_definitions, check_renames
from slackwater.project.project import Project

if TYPE_CHECKING:
    from slackwater.runs.table import RunTable

NOTED_DAYS = 100
"""How many days of a pipeline a command looks at before it does something else: their number must not grow with age."""


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
    lost: Mapping[str, LostDays] = field(default_factory=dict)
    """By removed pipeline."""

    @property
    def removed(self) -> list[DefinitionChange]:
        """The definitions that are removed."""
        return [change for change in self.changes if change.change is Change.REMOVED]


def make_plan(
    project: Project, deployed: Project, table: RunTable, *, pipelines: Collection[str] | None = None
) -> Plan:
    """Return what a deployment of `project` changes in the deployed one.

    All days of all pipelines that change are read. With `pipelines`, which commands pass each time, only the latest
    `NOTED_DAYS` of each of these are. The code of the steps counts as unchanged. Raises `CloudError`, and
    `DefinitionError` for a name under which the data of a pipeline is not stored.
    """
    check_renames(project, deployed)
    changes = tuple(changed_definitions(project, deployed))
    if not changes:
        return Plan(changes=())
    # Commands compare each time, and without changes need not wait for these imports.
    from slackwater.client.days.backfill_plan import FIRST_DATE, LAST_DATE
    from slackwater.runs.freeze import is_stale

    files, limit = project.model_copy(update={"code": deployed.code}), None if pipelines is None else NOTED_DAYS
    stale, lost = dict[str, tuple[str, ...]](), dict[str, LostDays]()
    asked = deployed.pipelines if pipelines is None else map(project.stored_name, pipelines)
    for name in sorted(deployed.pipelines.keys() & set(asked)):
        if name not in files.pipelines:
            days = table.days(name, FIRST_DATE, LAST_DATE, limit=limit, latest_first=True)
            published = sum(day.published is not None for day in days)
            lost[deployed.present_name(name)] = LostDays(published, on_hold=sum(day.hold is not None for day in days))
        elif files.definition_digest(name) != deployed.definition_digest(name):
            days = table.days(name, FIRST_DATE, LAST_DATE, limit=limit, latest_first=True)
            if dates := [day.date for day in days if day.published and is_stale(day.published.run, files)]:
                stale[project.present_name(name)] = tuple(reversed(dates))
    return Plan(changes=changes, stale=stale, lost=lost)
