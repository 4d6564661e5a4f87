"""What a scheduled run waits for before it lists its inputs, and for how long: the key `when` of a pipeline."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Tag

from slackwater.model import Duration, Model, Name, duration_of

MAX_WAIT = timedelta(days=7)
"""Each 15 minutes of a wait add events to the history of an execution, which has room for 25,000."""


def _check_after(value: str) -> str:
    if duration_of(value) > MAX_WAIT:
        raise ValueError(f"{value!r} is longer than {MAX_WAIT.days}d, the longest wait")
    return value


class NewerThan(Model):
    """An input that has changed not long ago."""

    newer_than: Duration
    """So long ago, at most, the newest object of the day has arrived, or the table's rows have changed."""


def _type_of_condition(value: Any) -> str:
    return NewerThan.__name__ if isinstance(value, NewerThan | dict) else "complete"


Condition = Annotated[
    Annotated[Literal["complete"], Tag("complete")] | Annotated[NewerThan, Tag(NewerThan.__name__)],
    Discriminator(_type_of_condition),
]
"""What a run waits for of one input. A mapping is a `NewerThan`, so that a misspelt key is reported for it."""


class WaitLimit(Model):
    """For how long a run waits, and what happens then."""

    after: Annotated[Duration, AfterValidator(_check_after)] = "24h"
    """Counted from the end of the day or hour: 30m, 12h, or 7d at most."""
    then: Literal["fail", "run"] = "fail"
    """`fail`, or `run` without what is missing."""


class When(Model):
    """What a scheduled run waits for. A run that a person starts, a back-fill and a re-run wait for nothing."""

    inputs: dict[Name, Condition] = {}
    """By input: `complete`, when all events that the source has sent are there, or `{newer_than: 24h}`. Published days
    of other pipelines have the key `missing: wait` instead."""
    quality: dict[Name, Literal["pass"]] = {}
    """By source, or table of another pipeline: `pass`, as long as no verdict says that what the run reads has failed.
    After `incomplete.after`, the run fails, also with `then: run`."""
    unknown: WaitLimit = WaitLimit()
    """For how long to wait for the counts of a source."""
    incomplete: WaitLimit = WaitLimit()
    """For how long to wait for everything else: missing events, newer data, published days and quality."""

    @property
    def longest(self) -> timedelta:
        """The longest time that a run waits, from the end of its day."""
        return max(duration_of(limit.after) for limit in (self.unknown, self.incomplete))
