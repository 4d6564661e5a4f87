"""Handle the messages of the queue of states: those about one source are handled together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby, islice
from typing import NamedTuple

from slackwater.errors import ObjectInvalid, SlackwaterError, UnknownName
from slackwater.runs.periods.fold_periods import ListedHour, PeriodFolder
from slackwater.runs.periods.read_parts import HourReader, place_of
from slackwater.state.facts import Part
from slackwater.state.messages import HoursChanged, hour_of, read_message

_READERS = 16
# DynamoDB accepts about so many writes of one hour in a second.
_STORED_AT_ONCE = 1000
# Sources at the same time.
_SOURCES = 16


class MessagesFolded(NamedTuple):
    """What was done about the messages of one batch."""

    failed: Mapping[str, str]
    """Ids of the messages that have to be delivered again, with the reason."""
    objects: int
    """Objects that are facts now."""
    changed: int
    """Periods about which a message was sent."""


@dataclass
class _Work:
    """The messages about one source."""

    objects: dict[datetime, dict[str, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    """By hour, then by name of an object: the ids of the messages about it."""
    hours: dict[datetime, set[str]] = field(default_factory=lambda: defaultdict(set))
    listed: set[datetime] = field(default_factory=set)
    only_objects: bool = True
    all: set[str] = field(default_factory=set)


def fold_messages(messages: Mapping[str, str], folder: PeriodFolder) -> MessagesFolded:
    """Do what messages, by id, ask for. Those about sources without `counts`, and about other objects, are left out.

    A message that fails stops no other one.
    """
    work, failed = defaultdict[str, _Work](_Work), dict[str, str]()
    for id_, body in messages.items():
        try:
            _add(work, id_, body)
        except ValueError as error:
            failed[id_] = f"the message is not readable: {error}"
    counted = [(source, of_source) for source, of_source in work.items() if _has_counts(source, folder)]

    def fold(item: tuple[str, _Work]) -> MessagesFolded:
        return _fold(*item, folder)

    # Most of the time of a source is waiting for DynamoDB.
    with ThreadPoolExecutor(_SOURCES) as pool:
        results = list(pool.map(fold, counted))
    for result in results:
        failed.update(result.failed)
    return MessagesFolded(failed, sum(result.objects for result in results), sum(result.changed for result in results))


def _fold(source: str, work: _Work, folder: PeriodFolder) -> MessagesFolded:
    """Do what the messages about a source ask for."""
    failed, objects = dict[str, str](), 0
    try:
        objects = _put_parts(source, work, folder, failed)
        result = folder.fold(source, work.hours, only_objects=work.only_objects)
    except SlackwaterError as error:
        return MessagesFolded(dict.fromkeys(work.all, str(error)), objects, 0)
    for hour, reason in result.failed.items():
        # A report covers hours that it does not name, and its message has the coverage read: it is delivered again too.
        failed.update(dict.fromkeys(work.hours[hour] if work.only_objects and hour in work.hours else work.all, reason))
    return MessagesFolded(failed, objects, result.changed)


def _add(work: Mapping[str, _Work], id_: str, body: str) -> None:
    """Add a message to the work of its source. Raises `ValueError` for text that is no message."""
    message = read_message(body)
    if isinstance(message, HoursChanged):
        hours = [hour_of(name) for name in message.hours]
        of_source = work[message.source]
        for hour in hours:
            of_source.hours[hour].add(id_)
        of_source.listed.update(hours if message.listing else ())
        of_source.only_objects = False
        of_source.all.add(id_)
    elif place := place_of(message.key):
        source, hour, name = place
        work[source].objects[hour][name].add(id_)
        work[source].hours[hour].add(id_)
        work[source].all.add(id_)


def _has_counts(source: str, folder: PeriodFolder) -> bool:
    try:
        return folder.project.source(source).counts is not None
    except UnknownName:  # it was removed from the project
        return False


def _put_parts(source: str, work: _Work, folder: PeriodFolder, failed: dict[str, str]) -> int:
    """Store the objects of a source as facts; return their number. Adds messages whose objects cannot be read.

    Objects are stored while others are read. If the function times out, the next call lists the hours again, and reads
    only the objects that are not stored.
    """
    number = 0
    # One UTC date at a time: the daily check has many dates listed, each with up to 86,400 objects and more.
    for _, hours in groupby(sorted(work.objects.keys() | work.listed), key=datetime.date):
        objects = _read_hours(source, list(hours), work, folder, failed)
        while group := list(islice(objects, _STORED_AT_ONCE)):
            parts = defaultdict[datetime, list[Part]](list)
            for hour, part in group:
                parts[hour].append(part)
            folder.put_parts(source, parts)
            number += len(group)
    return number


def _list_hours(
    source: str, hours: Sequence[datetime], work: _Work, folder: PeriodFolder, failed: dict[str, str]
) -> dict[datetime, ListedHour]:
    """List the objects of UTC hours. Adds the messages about hours that cannot be listed, which stop no others."""
    if not hours:
        return {}
    try:
        return folder.list_hours(source, hours)
    except ObjectInvalid as error:
        if len(hours) == 1:
            failed.update(dict.fromkeys(work.hours[hours[0]], str(error)))
            return {}
    return {hour: listed for one in hours for hour, listed in _list_hours(source, [one], work, folder, failed).items()}


def _read_hours(
    source: str, hours: Sequence[datetime], work: _Work, folder: PeriodFolder, failed: dict[str, str]
) -> Iterator[tuple[datetime, Part]]:
    """Yield the objects of UTC hours, one hour after the other. Adds messages whose objects cannot be read."""
    keys = folder.project.source(source).count_keys
    listed = _list_hours(source, sorted(work.listed.intersection(hours)), work, folder, failed)

    def read(reader: HourReader, name: str) -> Part | SlackwaterError | None:
        try:
            return reader.read(name, keys)
        except SlackwaterError as error:
            return error

    pool = ThreadPoolExecutor(_READERS)
    try:
        # A reader keeps the index of its hour, and the columns of packed objects on disk: one at a time.
        for hour in hours:
            unknown, members = listed.pop(hour, ((), None))
            messages = {name: set(ids) for name, ids in work.objects[hour].items()}
            for name in unknown:
                messages.setdefault(name, set()).update(work.hours[hour])
            parts = pool.map(partial(read, folder.parts.hour_reader(source, hour, members)), messages)
            for ids, part in zip(messages.values(), parts, strict=True):
                if isinstance(part, SlackwaterError):
                    failed.update(dict.fromkeys(ids, str(part)))
                elif part:  # or it was deleted
                    yield hour, part
    finally:
        # If what was read could not be stored, nothing else is read.
        pool.shutdown(cancel_futures=True)
