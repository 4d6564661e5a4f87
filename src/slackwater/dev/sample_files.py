"""Samples from files of this machine, read as the receiver reads a partner's files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from slackwater.dev.sample import RejectedRow, Sample, events_of_day, first_of_each_id
from slackwater.errors import InputError
from slackwater.formatting import counted
from slackwater.receiver.formats.read import read_file
from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.runs.period import Period
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EVENT_TIME, event_schema
from slackwater.sources.file_format import Csv, FileFormat
from slackwater.sources.old_events import find_old_events
from slackwater.sources.pull_config import PullConfig
from slackwater.steps.io.table_files import read_table_file

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}
_COMPRESSED = frozenset({".gz", ".zip", ".zst", ".bz2"})
# How many rejected rows a sample lists.
_LISTED_REJECTED = 20


def source_sample(
    source: Source, paths: Sequence[Path], day: Period, *, rows: int, may_be_empty: bool = False
) -> Sample:
    """Return the first `rows` events of the day in the files. The files are not read further than that.

    Raises `InputError` for a file that does not exist or has an unknown format, and, unless it `may_be_empty`, if no
    event of the day is accepted; and `DataError` for a file that the receiver cannot read.
    """
    # As if the events had arrived at the end of the day: limits of their age would reject those of an old day.
    received_at = min(datetime.now(UTC), day.end)
    read = _Read()
    found = [event_schema(source).empty_table()]
    missing = rows
    for path in paths:
        if not path.is_file():
            raise InputError(f"--input: {source.source}: {path}: no such file")
        for checked in read_file(path, _as_pulled(source, path), name=path.name, received_at=received_at):
            read.add(checked, path)
            of_day = events_of_day(checked.table, day)
            read.of_other_days += checked.table.num_rows - of_day.num_rows
            found.append(of_day.slice(0, missing))
            missing -= found[-1].num_rows
            if not missing:
                break
        if not missing:
            break
    events = pa.concat_tables(found)
    if not events.num_rows and not may_be_empty:
        raise InputError(f"--input: {source.source}: {read.reason_for_nothing(day)}")
    of_day = events.num_rows
    if source.event_id:
        events = first_of_each_id(events, source.event_id)
    notes = [f"{counted(read.rejected, 'row')} rejected, the first: {read.first[0]}"] if read.rejected else []
    if old := find_old_events(read.dates, received_at=received_at):
        notes.append(old.note())
    return Sample(
        events.select(list(source.columns)),
        _names(paths),
        "; ".join(notes),
        rejected=read.rejected,
        first_rejected=tuple(read.first),
        of_other_days=read.of_other_days,
        duplicates=of_day - events.num_rows,
    )


def table_sample(name: str, paths: Sequence[Path], *, rows: int, is_published: bool = False) -> Sample:
    """Return the first rows of files with the rows of a table, whose columns have the types of the files.

    The column `date` of a table that another pipeline has published is a date, however the file has it. Raises
    `InputError` for a file that cannot be read, and for files whose columns do not fit together.
    """
    try:
        table = pa.concat_tables([read_table_file(path) for path in paths], promote_options="default")
        if is_published and "date" in table.column_names:
            index = table.schema.get_field_index("date")
            table = table.set_column(index, "date", table["date"].cast(pa.date32()))
    except pa.ArrowException as error:
        raise InputError(f"--input: {name}: {error}") from error
    return Sample(table.slice(0, rows), _names(paths))


class _Read:
    """What was read of a source's files, to explain a sample without rows."""

    def __init__(self) -> None:
        self._accepted = self.rejected = self.of_other_days = 0
        self.first: list[RejectedRow] = []
        self._times: list[datetime] = []
        self.dates: list[tuple[str, int]] = []
        """The dates of the accepted events, each with a number of events."""

    def add(self, checked: CheckedEvents, path: Path) -> None:
        rejected = CheckedEvents(
            checked.table, checked.rejections.slice(0, _LISTED_REJECTED - len(self.first))
        ).rejected
        self.first += [RejectedRow(path, event.line, event.index, event.reason) for event in rejected]
        self.rejected += checked.rejections.num_rows
        self._accepted += checked.table.num_rows
        if checked.table.num_rows:
            dates = pc.value_counts(checked.table[EVENT_TIME].cast(pa.date32())).to_pylist()
            self.dates += ((date["values"].isoformat(), date["counts"]) for date in dates)
            self._times += pc.min_max(checked.table[EVENT_TIME]).as_py().values()

    def reason_for_nothing(self, day: Period) -> str:
        if self._accepted:
            first, last = (f"{time:%Y-%m-%d %H:%M}" for time in (min(self._times), max(self._times)))
            return f"no event of {day.name}: events are from {first} to {last} UTC: name another --date"
        return f"all rows are rejected, the first: {self.first[0]}" if self.rejected else "there are no rows"


def _as_pulled(source: Source, path: Path) -> Source:
    """Return the source as one whose files have the format of `path`, with the options of the source's own format."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSED]
    name = _FORMATS.get(suffixes[-1]) if suffixes else None
    own = source.pull.format if source.pull else None
    if name is None and own is None:
        raise InputError(f"--input: {source.source}: {path} is none of the files {', '.join(_FORMATS)}: rename it")
    file_format = TypeAdapter[FileFormat](FileFormat).validate_python(name or own)
    if isinstance(own, Csv) and name == "tsv":
        file_format = own.model_copy(update={"delimiter": "\t"})
    elif own is not None and own.type == file_format.type:
        return source
    return source.model_copy(update={"pull": PullConfig(url="s3://files/", files="{date}", format=file_format)})


def _names(paths: Sequence[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else counted(len(paths), "file")
