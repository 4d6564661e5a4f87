"""The message that the rows of a pulled file are committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated
from uuid import uuid4

from pydantic import AwareDatetime, Field

from slackwater.model import IsoDate, Model
from slackwater.sources.partitions import Partition


class FileCommitted(Model):
    """The rows of a pulled file count from now on: its objects were written before, and readers ignored them."""

    id: str
    source: str
    date: IsoDate
    """UTC date of the partitions."""
    hours: tuple[Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3])$")], ...]
    time: AwareDatetime
    """An instant after the commit."""


def file_committed(source: str, partitions: Iterable[Partition], *, time: datetime) -> Iterator[FileCommitted]:
    """Yield a message for each UTC date of the partitions whose rows a commit at or before `time` has changed."""
    hours = defaultdict[str, set[str]](set)
    for partition in partitions:
        hours[partition.date].add(partition.hour)
    for date in sorted(hours):
        yield FileCommitted(id=uuid4().hex, source=source, date=date, hours=tuple(sorted(hours[date])), time=time)
