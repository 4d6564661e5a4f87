"""Days with late data that no run has read yet, as the run table lists them."""

from __future__ import annotations

from datetime import datetime

from slackwater.model import Record

MOST_OBJECTS = 100
"""From so many objects of a day on, further ones are not counted: the item stays small."""
MOST_DAYS = 1_000
"""Days that one read of the list returns at most."""


class LateDay(Record):
    """A published day with late data that waits for a run.

    Only this list names such a day after it has left the window: no check looks at all older days.
    """

    date: str
    since: datetime
    """When the day was listed, UTC."""
    last: datetime
    """When new data of the day was last seen, UTC."""
    objects: int = 0
    """New objects that events have named, at least: they are no longer counted from `MOST_OBJECTS` on. 0 if a check has
    listed the day."""
