"""The client of a deployed system: everything that people and programs do there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date as date_type
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, cast
from uuid import uuid4

from slackwater.aws.resources import utc_now
from slackwater.client.arguments import Date, checked_correlation_id, iso_date, pulled_source
from slackwater.client.days.executions import OnProgress, ignore, require_success
from slackwater.client.late_client import LateClient
from slackwater.client.resources import Connection, connect
from slackwater.client.workspace import Workspace, find_workspace
from slackwater.errors import InputError, NotDeployed, PullFailed
from slackwater.formatting import unescaped
from slackwater.project.project import Project

if TYPE_CHECKING:
    from slackwater.aws.raw_tables import Difference
    from slackwater.client.counts import DayCounts
    from slackwater.client.push import Event
    from slackwater.client.redrive import RedriveTotals
    from slackwater.client.sender import PushTotals
    from slackwater.client.states import SourceStates
    from slackwater.client.verdicts import FailedPeriod, GivenVerdict, Hour
    from slackwater.lineage.graph import Lineage
    from slackwater.receiver.pull.file_cache import FileEntry
    from slackwater.receiver.pull.recorded_files import RecordedFiles
    from slackwater.state.verdicts import Quality


class PullTotals(TypedDict):
    """Result of a pull: numbers of files by outcome, of events (`rows`), of rejected events, and of bytes.

    `new_columns` are the first columns of its files that the definition does not list, if their values are kept.
    `notes` are the first of `noted` sentences about files that lack columns, or have another encoding.
    """

    source: str
    listed: int
    stored: int
    unchanged: int
    duplicate: int
    vanished: int
    busy: int
    waiting: int
    removed: int
    doubtful: int
    left: int
    returned: int
    """Files that were removed, and that the partner lists again."""
    unmatched: int
    """Listed files that begin as the pattern and have a date of the window, but match no pattern of the folder."""
    unmatched_files: list[str]
    """The first three of them."""
    reports: int
    """Files with counts that were read."""
    refused_reports: list[str]
    """Why others were not, with their names: at most 5."""
    failed: int
    empty: int
    """Stored files without any event."""
    rows: int
    rejected: int
    bytes: int
    vanished_files: list[str]
    new_columns: list[str]
    noted: int
    notes: list[str]
    correlation_id: str


class Client(LateClient):
    """A client of a deployed system. Use it in a `with` statement, which closes its connections.

    It uses the cloud in the environment variable AWS_ENDPOINT_URL if that is set, else the project's local cloud if it
    runs, else AWS. For a local cloud, it sets the AWS variables of this process.

    Transient failures are repeated with growing, random pauses, at most as often as a budget allows; a wrong argument
    or missing permission is not. All errors are classes of `slackwater.errors`.
    """

    def __init__(
        self, project: str | Path = ".", *, correlation_id: str | None = None, connection: Connection | None = None
    ) -> None:
        """Connect to the deployed system of the project in the folder `project`.

        `correlation_id` is in the logs and records of everything that this client starts; by default it is a new one.
        `connection` replaces the one that is made for `project`. Raises `NotDeployed`, `DefinitionError`, `InputError`.
        """
        correlation_id = uuid4().hex if correlation_id is None else checked_correlation_id(correlation_id)
        super().__init__(connection or connect(find_workspace(Path(project))), correlation_id)

    @classmethod
    def open(cls, workspace: Workspace, project: Project | None = None) -> Client:
        """Return a client for a workspace. Arguments and errors are those of `connect`."""
        return cls(connection=connect(workspace, project))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def rebuild_table(self, source: str) -> Difference:
        """Drop the Iceberg table of a source's raw events, and create it again from the listing of its objects.

        Returns how many objects it has. Raises `UnknownName`, `DayChanged` while files of the source keep changing, and
        `CloudError`; the same call can be repeated.
        """
        return self.raw_tables.rebuild(source)

    def push(
        self,
        source: str,
        events: Iterable[Event],
        *,
        token: str | None = None,
        counts: bool = False,
        on_progress: Callable[[PushTotals], None] = ignore,
    ) -> PushTotals:
        """Send events with `token`, by default with a token of the operator that is created on first use.

        The same events can be sent again: those that are stored already count as duplicates. `on_progress` gets the
        totals after each batch. With `counts`, then report how many events this client has sent in the windows of these
        events; those before the end of the last window count as sent. Raises `InputError`, `DataError`, `AccessDenied`,
        `CloudError`.
        """
        return self.pusher.push(source, events, token=token, counts=counts, on_progress=on_progress)

    def redrive(
        self,
        source: str,
        date: Date,
        *,
        rule: str | None = None,
        dry_run: bool = False,
        on_progress: Callable[[RedriveTotals], None] = ignore,
    ) -> RedriveTotals:
        """Send the rejected events again that were pushed on a UTC day, by the deployed definition of the source.

        Each event that is accepted is stored once, however often this is repeated; the others stay rejected, with the
        first and the latest reason. With `rule`, only the events whose latest rejection is by this rule are sent. With
        `dry_run`, nothing is stored. `on_progress` gets the totals after each batch. A pull reads the files with
        rejected rows again. Raises `UnknownName`, `InputError` for a wrong date or rule, `NotDeployed`, `CloudError`.
        """
        self.project.source(source)
        if not self.settings.redrive_events_function:
            raise NotDeployed("the deployed version cannot send rejected events again: run slackwater deploy")
        return self.day_redrive.redrive(source, iso_date(date), rule=rule, dry_run=dry_run, on_progress=on_progress)

    def report_counts(
        self,
        source: str,
        counts: Mapping[datetime, int | Mapping[str, int]],
        *,
        through: datetime,
        as_of: datetime | None = None,
        token: str | None = None,
    ) -> dict[str, Any]:
        """Report how many events a source has sent, by the instants at which its windows begin.

        Of a source that counts by a column, each window has the numbers by its values, such as `{"EU": 3, "US": 0}`.

        All events before `through` have been sent: windows before it without a number have none. `as_of` is when they
        were counted, by default now: the newest report that names a window decides about it. Returns the API's answer,
        with `report_id` and `windows`. Raises `DataError` for a report that is refused, `AccessDenied`, `CloudError`.
        """
        from slackwater.state.reports import counts_of, window_key

        definition = self.project.source(source)
        counts_of(definition)
        keyed = {window_key(start, definition): count for start, count in counts.items()}
        return self.pusher.report(definition, as_of=as_of or utc_now(), through=through, counts=keyed, token=token)

    def counts(self, source: str, date: Date) -> DayCounts:
        """Return what a source has sent in each hour of a day, against what is stored and rejected.

        The day is in the timezone of the source's timestamps, or else of its files. Raises `UnknownName`, `InputError`
        for a source without `counts` or a wrong date, `NotDeployed`, `DayChanged`, `CloudError`.
        """
        from slackwater.client.counts import DayCounter

        self._require_state_table()
        counter = DayCounter(reader=self.counts_reader, inputs=self.inputs)
        return counter.counts(self.project.source(source), iso_date(date))

    def states(
        self, source: str | None = None, *, first: Date | None = None, last: Date | None = None
    ) -> list[SourceStates]:
        """Return the states of the hours of a source, or of all with `counts`: by default of today, UTC.

        They are those that were computed when something was last stored or reported, some seconds after that; `counts`
        computes them now. Raises `UnknownName`, `InputError` for a source without `counts` or a wrong date,
        `NotDeployed`, `CloudError`.
        """
        from slackwater.client.states import source_states
        from slackwater.state.reports import counts_of

        self._require_state_table()
        end = date_type.fromisoformat(iso_date(last, name="last")) if last else utc_now().date()
        start = date_type.fromisoformat(iso_date(first, name="first")) if first else end
        if source:
            counts_of(self.project.source(source))
        found = [definition for name, definition in sorted(self.project.sources.items()) if source in {None, name}]
        return [source_states(self.period_table, each, start, end) for each in found if each.counts]

    def lineage(
        self,
        pipeline: str,
        date: Date,
        *,
        version: int | None = None,
        up: bool = True,
        down: bool = True,
        objects: bool = False,
    ) -> Lineage:
        """Return what a version of a day or an hour has read (`up`), and which published ones have read it (`down`).

        Without `version`, of the published one, and with the readers of all versions. With `objects`, each source has
        its exact objects. At most 1,000 versions in each direction. Raises `UnknownName`, `NotDeployed`,
        `ObjectInvalid`, `CloudError`, and `InputError` for a version that was not published.
        """
        from slackwater.client.lineage import LineageReader

        verdicts = self.verdict_table if self.settings.state_table else None
        reader = LineageReader(project=self.deployed, table=self.run_table, store=self.store, verdicts=verdicts)
        stored = self.project.stored_name(pipeline)
        period = self._period(stored, date)
        return reader.read(stored, period, version=version, up=up, down=down, lists_objects=objects)

    def verdict(
        self, name: str, quality: Quality, *, reason: str, hour: Hour | None = None, date: Date | None = None
    ) -> GivenVerdict:
        """Say that the data of a UTC hour of a source, or of a day of a source or a pipeline, is good (`pass`) or not.

        The newest verdict about a period decides. That about a day of a pipeline, or an hour of an hourly one, is about
        its published version: a later version has none. A day of a source is in the timezone of its timestamps, or else
        of its files. If a source and a pipeline have the name, a date is that of the pipeline. Raises `UnknownName`,
        `NotDeployed`, and `InputError` for a period without a published version, an hour or a date that is none or has
        not begun, and an empty or long reason.
        """
        self._require_state_table()
        return self.verdicts.give(name, quality, reason=reason, hour=hour, date=date)

    def failed_periods(
        self, name: str | None = None, *, first: Date | None = None, last: Date | None = None
    ) -> list[FailedPeriod]:
        """Return the hours of sources (UTC) that have failed, and the published days that have, or have read them.

        Those of the deployed source and pipeline with this name, or of all: by default of today. Raises `UnknownName`,
        `InputError` for a wrong date, `NotDeployed`, `CloudError`.
        """
        self._require_state_table()
        end = iso_date(last, name="last") if last else utc_now().date().isoformat()
        start = iso_date(first, name="first") if first else end
        return self.verdicts.failed(self.verdicts.subjects(name), start, end)

    def _require_state_table(self) -> None:
        if not self.settings.state_table:
            raise NotDeployed("the deployed version stores no counts: run slackwater deploy")

    def pull(
        self, source: str, *, as_of: Date | None = None, accept_removed: int = 0, on_progress: OnProgress = ignore
    ) -> PullTotals:
        """Pull a source's new and changed files as of a date, by default today, and return when it has ended.

        The removal of up to `accept_removed` files is recorded although the partner lists fewer files than that.
        Raises `PullFailed`, with the totals, if a file could not be fetched or if all events were rejected, `RunFailed`
        if the pull failed otherwise, and `InputError` for a source without `pull`.
        """
        pulled_source(self.project, source)
        day = None if as_of is None else iso_date(as_of, name="as_of")
        execution = self.executions.start(
            self.connection.deployment.pull_machine_arn,
            name=day or "today",
            payload={"source": source, "as_of": day, **({"accept_removed": accept_removed} if accept_removed else {})},
        )
        view = self.executions.wait(execution, on_progress=on_progress)
        if view.error in {"FilesFailed", "NoEventAccepted"}:
            raise PullFailed(unescaped(view.cause), self.executions.state_machines.failure_input(view.arn))
        return cast("PullTotals", dict(require_success(view)))

    def files(
        self, source: str, *, state: str | None = None, as_of: Date | None = None, limit: int = 100
    ) -> RecordedFiles:
        """Return at most `limit` recorded files of a pulled source: those of the look-back window, and all not taken.

        `state` is a value of `FileState`, such as `failed`. The window ends on `as_of`, by default today.
        Raises `InputError` for a wrong state or date, or a source without `pull`.
        """
        from slackwater.receiver.pull.file_cache import FileState
        from slackwater.receiver.pull.recorded_files import recorded_files

        if state not in {None, *FileState}:
            raise InputError(f"state: {state!r} is not one of {', '.join(FileState)}")
        return recorded_files(
            pulled_source(self.project, source),
            cache=self.file_cache,
            state=None if state is None else FileState(state),
            as_of=None if as_of is None else date_type.fromisoformat(iso_date(as_of, name="as_of")),
            now=utc_now(),
            limit=limit,
        )

    def give_up(self, source: str, paths: Sequence[str], *, reason: str | None = None) -> list[FileEntry]:
        """Give up files of a source: no pull fetches them, unless the partner changes them. All, or none.

        Without `reason`, the reason of the last failure stays. Raises `InputError`.
        """
        from slackwater.receiver.pull.give_up import give_up

        pulled_source(self.project, source)
        return give_up(source, paths, reason=reason, cache=self.file_cache, now=utc_now())
