"""How often the running day or hour is published: the key `live` of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, model_validator

from slackwater.model import Cron, Model
from slackwater.problems import Problem

if TYPE_CHECKING:
    from slackwater.pipeline.definition import Pipeline

_EVERY = re.compile(r"([1-9][0-9]{0,4})([sm])")
_HOUR = 60
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours"}


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
    """How often the day or hour that has not ended is published, if there are new events. One of the two keys."""

    every: Annotated[str, AfterValidator(_check_every)] | None = None
    """At each of these minutes: `60s`, `5m`, or another part of an hour. Below 5m, the deployment must keep workers
    ready (settings `pre_warmed_drivers` and `pre_warmed_executors`)."""
    windows: Literal["5m", "10m", "30m", "1h"] | None = None
    """When all events of the next so many minutes are there by the `counts` of all sources: `5m`, `10m`, `30m` or
    `1h`. A run starts at each of these minutes too, so that sources without new counts are published."""

    @model_validator(mode="after")
    def _check_keys(self) -> Live:
        if (self.every is None) == (self.windows is None):
            raise ValueError("write either `every: 5m` or `windows: 10m`")
        return self

    @property
    def interval(self) -> timedelta:
        """The time between two scheduled runs."""
        value = self.every or self.windows or ""
        return timedelta(**{_UNITS[value[-1]]: int(value[:-1])})

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
        yield Problem(path=("live", "every" if pipeline.live.every else "windows"), message=message)
    if pipeline.live.windows and not pipeline.sources:
        message = "the pipeline reads no source, whose windows could become complete: use `every`"
        yield Problem(path=("live", "windows"), message=message)
