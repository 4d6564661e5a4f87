"""How often the running day or hour is published: the key `live` of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from slackwater.model import Cron, Model
from slackwater.problems import Problem

if TYPE_CHECKING:
    from slackwater.pipeline.definition import Pipeline

_EVERY = re.compile(r"([1-9][0-9]{0,4})([sm])")
_HOUR = 60


def _check_every(value: str) -> str:
    match = _EVERY.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not a time such as 60s or 5m")
    seconds = int(match[1]) * (1 if match[2] == "s" else 60)
    if seconds < _HOUR:
        raise ValueError(f"{value!r} is shorter than 60s, the shortest interval of a scheduler")
    if seconds % 60 or _HOUR % (seconds // 60):
        # A cron expression begins again in each hour.
        raise ValueError(f"{value!r}: use 1m, 2m, 3m, 4m, 5m, 6m, 10m, 12m, 15m, 20m, 30m or 60m")
    return value


class Live(Model):
    """How often the day or hour that has not ended is published, if there are new events."""

    every: Annotated[str, AfterValidator(_check_every)]
    """At each of these minutes: `60s`, `5m`, or another part of an hour. Below 5m, the deployment must keep workers
    ready (settings `pre_warmed_drivers` and `pre_warmed_executors`)."""

    @property
    def interval(self) -> timedelta:
        """The time between two runs."""
        unit = "seconds" if self.every.endswith("s") else "minutes"
        return timedelta(**{unit: int(self.every[:-1])})

    @property
    def cron(self) -> Cron:
        """The minutes of each hour at which a run starts."""
        minutes = self.interval // timedelta(minutes=1)
        minute = {1: "*", _HOUR: "0"}.get(minutes, f"*/{minutes}")
        return f"{minute} * * * *"


def live_problems(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield the problems of a pipeline whose open period is published."""
    if pipeline.live is None:
        return
    if pipeline.load:
        message = "load steps would write provisional rows elsewhere, where nothing marks them: remove one of the two"
        yield Problem(path=("live",), at_key=True, message=message)
    if pipeline.period == "hour" and pipeline.live.interval >= timedelta(hours=1):
        message = "an hour that is published once an hour is never open then: use 30m or less"
        yield Problem(path=("live", "every"), message=message)
