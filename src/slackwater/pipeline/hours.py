"""What the definition of a pipeline with `period: hour` must have, and what such pipelines do not support yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from slackwater.model import CRON_FIELDS, Cron
from slackwater.pipeline.table_inputs import AnyTableInput, TableInput
from slackwater.problems import Problem

if TYPE_CHECKING:
    from slackwater.pipeline.definition import Pipeline


def hour_problems(pipeline: Pipeline) -> Iterator[Problem]:
    """Yield the problems of an hourly pipeline that a daily one would not have."""
    if "hour" not in pipeline.publish.key:
        message = "it must contain `hour`: with `period: hour`, the table is partitioned by `date` and `hour`"
        yield Problem(path=("publish", "key"), message=message)
    if pipeline.publish.hour:
        message = "an hour is not compared by hours: remove it"
        yield Problem(path=("publish", "hour"), at_key=True, message=message)
    for name, table in pipeline.tables.items():
        yield from _table_problems(name, table)
    if pipeline.late.window_days != type(pipeline.late).model_fields["window_days"].default:
        message = "the window of an hourly pipeline is `window_hours`: write that instead"
        yield Problem(path=("late", "window_days"), at_key=True, message=message)
    if not _starts_each_hour(pipeline.schedule.process):
        message = 'it must start each hour once, such as "10 * * * *": an hour that is left out does not run'
        yield Problem(path=("schedule", "process"), message=message)


def _table_problems(name: str, table: AnyTableInput) -> Iterator[Problem]:
    path = ("tables", name)
    if not isinstance(table, TableInput):
        message = "each commit to an Iceberg table would run all hours again: read it in a daily pipeline"
        yield Problem(path=path, at_key=True, message=message)
        return
    if table.on_change == "notify":
        message = "each hour would cause a message: use `auto`, `hold` or `ignore`"
        yield Problem(path=(*path, "on_change"), message=message)


def _starts_each_hour(cron: Cron) -> bool:
    """Return whether a cron expression has one time in each hour; also of one that is not valid, which is refused."""
    try:
        times = zip(CRON_FIELDS.values(), cron.split(), strict=True)
        (_, minutes), *others = [(field, field.values(value)) for field, value in times]
    except ValueError:
        return True
    return len(minutes) == 1 and all(len(values) > field.high - field.low for field, values in others)
