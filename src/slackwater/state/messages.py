"""The messages of the queue of states: each names hours whose facts may have changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Annotated

from pydantic import Field, TypeAdapter

from slackwater.model import Model
from slackwater.sources.partitions import Partition

_Hour = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT([01]\d|2[0-3])$")]


class ObjectWritten(Model):
    """An object was written to a partition: the message that the rule of S3's events makes."""

    id: str
    key: str
    time: datetime


class HoursChanged(Model):
    """Facts about hours of a source were stored, or readers see other objects in them."""

    source: str
    hours: tuple[_Hour, ...] = ()
    """UTC, such as 2026-01-01T15."""
    listing: bool = False
    """Whether objects that no message was about may be in these hours: they are listed."""


StateMessage = ObjectWritten | HoursChanged
_ANY: TypeAdapter[StateMessage] = TypeAdapter(StateMessage)


def read_message(body: str) -> StateMessage:
    """Return the message. Raises `ValueError` for any other text."""
    return _ANY.validate_json(body)


def hours_changed(source: str, hours: Iterable[datetime], *, listing: bool = False) -> HoursChanged:
    """Return the message about these hours; only about the reports of the source, if there are none."""
    names = sorted({hour.astimezone(UTC).isoformat()[:13] for hour in hours})
    return HoursChanged(source=source, hours=tuple(names), listing=listing)


def partitions_changed(source: str, partitions: Iterable[Partition]) -> HoursChanged:
    """Return the message about these partitions."""
    return HoursChanged(source=source, hours=_names(partitions))


def listed_by_day(source: str, partitions: Iterable[Partition]) -> Iterator[HoursChanged]:
    """Yield the messages about these partitions, one for each UTC date: their objects are listed."""
    for _, group in groupby(sorted(partitions), key=attrgetter("date")):
        yield HoursChanged(source=source, hours=_names(group), listing=True)


def _names(partitions: Iterable[Partition]) -> tuple[str, ...]:
    return tuple(sorted({f"{partition.date}T{partition.hour}" for partition in partitions}))


def hour_of(name: str) -> datetime:
    """Return the hour of a message, UTC. Raises `ValueError` for a date that does not exist."""
    return datetime.fromisoformat(f"{name}:00:00+00:00")
