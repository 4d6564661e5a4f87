"""What is known about a day when a check decides about it, and what follows from that. Nothing here reads or writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from pydantic import ValidationError

from slackwater.errors import DayChanged, ObjectInvalid, ObjectMissing, SlackwaterError, Throttled, Unavailable
from slackwater.late.amounts import late_amount, late_percent, reached_thresholds
from slackwater.late.decision import MAX_FAILURES, DecisionRule, TableChange
from slackwater.late.entry import LateInput
from slackwater.model import first_error
from slackwater.pipeline.definition import Late
from slackwater.pipeline.table_inputs import OnChange, OnInvalid, TableInput
from slackwater.runs.holds import decision_about
from slackwater.runs.inputs.difference import SourceDifference
from slackwater.runs.period import Period, period_kind
from slackwater.runs.pipeline_records import RerunUsage
from slackwater.runs.record import DayRecord, ResolutionAction, RunRecord
from slackwater.sources.late_thresholds import LateThresholds
from slackwater.state.completeness import PeriodCounts, SourceCounts
from slackwater.state.verdicts import Verdict

TRANSIENT_ERRORS = (DayChanged, ObjectMissing, Throttled, Unavailable)
"""These may pass within seconds, so the day is read once more."""


def as_slackwater_error(error: SlackwaterError | ValidationError) -> SlackwaterError:
    """Return the error; for a stored record that is no valid model, an `ObjectInvalid` that names its field."""
    return error if isinstance(error, SlackwaterError) else ObjectInvalid(first_error(error))


class MaxAge(NamedTuple):
    """How long late data of an input may wait, and where that is defined."""

    hours: float
    label: str
    """In the words of a reason: `late.max_age_hours 24`."""


class SourceThresholds(NamedTuple):
    """The thresholds of a source in one pipeline, and where they are defined."""

    thresholds: LateThresholds
    origin: str
    """In the words of a reason: `its source`, `pipeline daily_delays`."""


class DefinitionChange(NamedTuple):
    """What has changed in the definition of a pipeline since the published run of a day."""

    lines: tuple[str, ...]
    """In words, one for each input."""
    digest: str
    """Of the present definition."""
    reruns: bool
    """Whether the pipeline runs such a day again."""
    moves_hours: bool
    """Whether the pipeline had another timezone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DayInputs:
    """The present inputs of a published day, compared with those that its run has read."""

    digest: str
    """Of the present inputs: a decision of a person is about them."""
    differences: tuple[SourceDifference, ...]
    """The changes of the inputs that the definitions of both times read."""
    thresholds: Mapping[str, SourceThresholds]
    """Of every input of the pipeline."""
    tables: Mapping[str, TableInput] = field(default_factory=dict)
    """The inputs that are days of other pipelines."""
    failed: Sequence[RunRecord] = ()
    """The latest attempts, in order, that have failed, or ended without an outcome, with the inputs and the definition
    that a new run would have."""
    last_rerun_at: datetime | None = None
    """When the latest re-run started."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """For how many hours the oldest late data of each input has waited."""
    max_ages: Mapping[str, MaxAge] = field(default_factory=dict)
    """For how many hours it may."""
    ages_at: datetime | None = None
    """When late data will have waited for so long."""
    definition: DefinitionChange | None = None
    """What has changed in the definition; None for nothing."""
    rejected: Sequence[str] = ()
    """Sentences about sources whose present definition rejects rows that the published run has read."""
    is_repeated: bool = False
    """Whether changed tables have run the day again too often."""
    rows: int = 0
    """Of all objects that a run would read."""
    bytes: int = 0
    """Of the same objects."""
    counts: tuple[SourceCounts, ...] = ()
    """What the sources with `counts` have sent, against the rows of these inputs."""
    periods: Mapping[str, Sequence[PeriodCounts]] = field(default_factory=dict)
    """The same by source, for each hour or day."""
    incomplete_until: datetime | None = None
    """Until when late data waits for more events that sources have reported; None if it does not."""
    invalid_read: Mapping[str, tuple[Verdict, ...]] = field(default_factory=dict)
    """By input: the verdicts by which that has failed which the published run has read."""
    invalid_now: Mapping[str, tuple[Verdict, ...]] = field(default_factory=dict)
    """The same for what a run would read."""
    on_invalid: Mapping[str, OnInvalid] = field(default_factory=dict)
    """By input: what follows; `hold` for those that are missing."""
    table_changes: tuple[TableChange, ...] = ()
    late_inputs: tuple[LateInput, ...] = ()

    @cached_property
    def rerun_inputs(self) -> tuple[SourceDifference, ...]:
        """The differences of all inputs except the tables whose changes decide nothing."""
        ignored = {name for name, table in self.tables.items() if not table.decides}
        return tuple(item for item in self.differences if item.source not in ignored)

    def changed_tables(self, wanted: OnChange) -> tuple[SourceDifference, ...]:
        """Return the differences of the tables with `wanted` that have other days than before."""
        tables = (item for item in self.differences if item.source in self.tables)
        chosen = (item for item in tables if self.tables[item.source].on_change == wanted)
        return tuple(item for item in chosen if item.lost or item.late.objects)

    @cached_property
    def is_lost(self) -> bool:
        """Whether a run would publish less than before."""
        return any(item.lost_rows for item in self.rerun_inputs)

    @cached_property
    def is_table_held(self) -> bool:
        """Whether a table with `on_change: hold` has changed."""
        return bool(self.changed_tables("hold"))

    @cached_property
    def late(self) -> tuple[SourceDifference, ...]:
        """The differences of the inputs with late data or dropped files."""
        return tuple(item for item in self.rerun_inputs if item.unprocessed.objects)

    @cached_property
    def reached(self) -> dict[str, tuple[str, ...]]:
        """By input with late data: the thresholds that it reaches, in words."""
        return {
            item.source: reached_thresholds(late_amount(item), self.thresholds[item.source].thresholds)
            for item in self.late
        }

    @property
    def is_grown(self) -> bool:
        """Whether late data reaches a threshold."""
        return any(self.reached.values())

    @cached_property
    def aged(self) -> tuple[str, ...]:
        """The inputs whose late data has waited for as long as it may."""
        return tuple(name for name, limit in self.max_ages.items() if self.waits.get(name, 0.0) >= limit.hours)

    def held_verdicts(self, *, would_run: bool) -> dict[str, tuple[Verdict, ...]]:
        """Return by input the verdicts that put the day on hold.

        A run would read the data, and the day would run, or the published run has read failed data of the input too.
        """
        return {
            name: found
            for name, found in self.invalid_now.items()
            if self.on_invalid.get(name, "hold") == "hold" and (would_run or name in self.invalid_read)
        }

    @cached_property
    def repaired(self) -> tuple[SourceDifference, ...]:
        """The differences of inputs with `on_invalid: rerun` of which the published run has read failed data."""
        chosen = {name for name in self.invalid_read if self.on_invalid.get(name) == "rerun"}
        return tuple(item for item in self.differences if item.source in chosen and item.changes)

    @property
    def is_late(self) -> bool:
        """Whether late data alone would run the day again."""
        return self.is_grown or bool(self.late and self.aged)


@dataclass(frozen=True, kw_only=True, eq=False)
class Limits:
    """What limits the re-run of a day at its place in the order of the days that would run again."""

    policy: Late
    now: datetime
    tomorrow: datetime
    """When the next calendar day begins."""
    price: float | None
    """Of a re-run in USD; None if no run has a price."""
    usage: RerunUsage
    """The re-runs that checks have counted today, also those of days before this one in the order."""
    earlier_waits: bool = False
    """Whether a day before this one waits for the budget."""
    position: int = 0
    """How many days before this one run again."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DayFacts:
    """What is known about one day."""

    day: Period
    record: DayRecord
    is_in_window: bool = True
    """Whether the day belongs to the window of the check: only such days run again for a new definition."""
    is_current: bool = False
    """Whether the day has not ended yet."""
    is_running: bool = False
    is_published: bool | None = None
    """None if the day's record could not be read."""
    frozen_at: datetime | None = None
    """When the published run listed its inputs."""
    compared: DayInputs | None = None
    """None if the inputs were not compared."""
    limits: Limits | None = None
    """None if they do not count: the check has not counted its re-runs yet, or counts none."""
    error: SlackwaterError | None = None
    """Why the day could not be read, or its record not be written."""

    def failed(self, error: SlackwaterError | ValidationError) -> DayFacts:
        """Return what is left of the facts after an error: the inputs may have changed."""
        return replace(self, error=as_slackwater_error(error), frozen_at=None, compared=None, limits=None)

    @property
    def inputs(self) -> DayInputs:
        """The compared inputs. Raises `ValueError` without them."""
        if self.compared is None:
            raise ValueError(f"the inputs of {self.record.pipeline} {self.record.date} were not compared")
        return self.compared

    @property
    def unit(self) -> str:
        """In the words of a reason: `day`, or `hour`."""
        return period_kind(self.record.date)

    @property
    def digest(self) -> str:
        """Of the inputs that were compared; empty if none were."""
        return self.compared.digest if self.compared else ""

    @property
    def is_rolled_back(self) -> bool:
        """Whether a person has published an earlier version again."""
        return self.record.hold is not None and self.record.hold.rule == DecisionRule.ROLLED_BACK

    @property
    def is_early(self) -> bool:
        """Whether the record of the day decides without its inputs."""
        has_version = self.record.published is not None and not self.is_rolled_back
        return self.error is None and (self.is_running or self.is_current or not has_version)

    @property
    def is_released(self) -> bool:
        """Whether a person has released the day with its present inputs."""
        return decision_about(self.record, self.digest) is ResolutionAction.RELEASED

    @property
    def is_kept(self) -> bool:
        """Whether a person keeps the published version with the present inputs, and a run would change it.

        A later verdict asks again.
        """
        made = decision_about(self.record, self.digest) is ResolutionAction.KEPT
        is_decided = made and not self.is_outcome_unknown and (self.audit_holds or self.would_run)
        return is_decided and not self.held_verdicts

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether an attempt has ended without an outcome, so that the published version is not known."""
        return self.record.outcome_unknown or self.record.active is not None

    @property
    def keeps_failing(self) -> bool:
        """Whether the latest `MAX_FAILURES` attempts have failed, with any inputs, since the day was published."""
        published = self.record.published
        return published is not None and self.record.attempts - published.run.attempt >= MAX_FAILURES

    @property
    def is_repeated(self) -> bool:
        """Whether late data would run the day again, and tables have done so too often."""
        return self.inputs.is_late and self.inputs.is_repeated

    @property
    def needs_person(self) -> bool:
        """Whether only a person may have the day run again with its present inputs."""
        return self.inputs.is_lost or self.inputs.is_table_held or self.is_repeated

    @property
    def reruns_definition(self) -> bool:
        """Whether the day would run again for a new definition."""
        return self.is_in_window and self.inputs.definition is not None and self.inputs.definition.reruns

    @property
    def held_verdicts(self) -> dict[str, tuple[Verdict, ...]]:
        """By input: the verdicts that put the day on hold; none that a person has known who has decided about it."""
        made = self.record.resolution if decision_about(self.record, self.digest) else None
        found = self.inputs.held_verdicts(would_run=self.would_run)
        return {
            name: new for name, all_ in found.items() if (new := tuple(v for v in all_ if not made or v.at > made.at))
        }

    @property
    def is_due_anyway(self) -> bool:
        """Whether the day would run again without its late data too."""
        return self.is_outcome_unknown or self.needs_person or self.reruns_definition or bool(self.inputs.repaired)

    @property
    def would_run(self) -> bool:
        """Whether the day would run again if no person, failure or limit stopped it."""
        return self.is_due_anyway or self.inputs.is_late

    @property
    def audit_holds(self) -> bool:
        """Whether the latest attempt did not pass the audit, and a run would have the same inputs and definition."""
        hold, failed = self.record.hold, self.inputs.failed
        return bool(failed and hold and (hold.rule, hold.attempt) == (DecisionRule.AUDIT, failed[-1].run.attempt))

    @property
    def attempt(self) -> int:
        """The attempt that a re-run would get."""
        return self.record.attempts + 1

    @property
    def is_exempt_repair(self) -> bool:
        """Whether no limit defers the day: it repairs an unknown outcome, and its attempts do not keep failing."""
        return self.is_outcome_unknown and not self.keeps_failing

    @property
    def cooled_limits(self) -> Limits | None:
        """The limits of a re-run that a check may have counted; None if none defers the day."""
        return None if self.limits is None or not self.would_run or self.is_exempt_repair else self.limits

    @property
    def counted_limits(self) -> Limits | None:
        """The limits of a re-run that no check has counted; None if none defers the day."""
        limits = self.cooled_limits
        return None if limits is None or limits.usage.has(self.record.date, self.attempt) else limits

    @property
    def worth_usd(self) -> float | None:
        """What a re-run for the late data may cost; None without `late.worth_per_percent`, or without rows before."""
        percent = late_percent(self.inputs.rerun_inputs)
        usd = self.limits.policy.worth_per_percent if self.limits else None
        return None if usd is None or percent is None else usd * percent

    @property
    def cool_down_end(self) -> datetime | None:
        """Until when the day is not run again; None if it was not run again, or without limits."""
        if self.limits is None or self.inputs.last_rerun_at is None:
            return None
        return self.inputs.last_rerun_at + timedelta(hours=self.limits.policy.cool_down_hours)

    @property
    def other_reruns(self) -> tuple[int, float]:
        """How many other re-runs checks have counted today, and their estimated price in USD."""
        usage = self.limits.usage.reruns if self.limits else ()
        others = [item for item in usage if (item.date, item.attempt) != (self.record.date, self.attempt)]
        return len(others), sum(item.usd or 0.0 for item in others)
