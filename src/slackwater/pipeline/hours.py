"""What the definition of a pipeline with `period: hour` must have, and what such pipelines do not support yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from slackwater.problems import Problem

if TYPE_CHECKING:
    from slackwater.pipeline.definition import Pipeline

_NOT_YET = "it is not supported with `period: hour` yet: remove it"
_NOT_CHECKED = "no check looks at hours for late data yet: remove it"


def hour_problems(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield the problems of an hourly pipeline that a daily one would not have."""
    if "hour" not in pipeline.publish.key:
        message = "it must contain `hour`: with `period: hour`, the table is partitioned by `date` and `hour`"
        yield Problem(path=("publish", "key"), message=message)
    if pipeline.publish.hour:
        message = "an hour is not compared by hours: remove it"
        yield Problem(path=("publish", "hour"), at_key=True, message=message)
    if pipeline.timezone != "UTC":
        yield Problem(path=("timezone",), at_key=True, message="hours are those of UTC: remove it")
    defaults = {name: field.default for name, field in type(pipeline).model_fields.items()}
    for key in ("tables", "load", "when"):
        if getattr(pipeline, key) != defaults[key]:
            yield Problem(path=(key,), at_key=True, message=_NOT_YET)
    for key in ("late", "deadline_hours"):
        if getattr(pipeline, key) != defaults[key]:
            yield Problem(path=(key,), at_key=True, message=_NOT_CHECKED)
    if pipeline.schedule.monitor != defaults["schedule"].monitor:
        yield Problem(path=("schedule", "monitor"), at_key=True, message=_NOT_CHECKED)
    if pipeline.schedule.process == defaults["schedule"].process:
        message = 'the default starts one hour a day: write when each hour starts, such as `process: "10 * * * *"`'
        yield Problem(path=("schedule", "process"), message=message)
