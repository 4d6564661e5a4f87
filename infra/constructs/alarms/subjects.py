"""Which pipelines, sources and state machines have an alarm, and which of its data points count."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from aws_cdk import Duration

from infra.settings import Scheduler, Settings
from slackwater.model import Cron
from slackwater.project.cron import cron_matches
from slackwater.project.project import Project
from slackwater.project.schedule import BACKFILL_MACHINE, COMPARE_MACHINE, PULL_MACHINE

# Pulls in a row, each in a period of its own, that have to leave files before an alarm fires.
_PULLS_IN_A_ROW = 3
# Two daily checks can be 25 hours apart when the clocks go back, and a check takes time. The alarm counts periods of an
# hour: one period of a day is a sliding window and would fire whenever a check is minutes later than the one before.
_MORE_HOURS_BETWEEN_CHECKS = 2
# The periods of an alarm have at most seven days together.
_MAX_HOURS = 7 * 24


class Evaluation(NamedTuple):
    """The length of a period, how many periods count, and how many of them have to reach the threshold: by default all.

    The default is for counters: long enough for data points that reach CloudWatch late, short enough that two failures
    fire the alarm twice.
    """

    period: Duration = Duration.minutes(5)
    periods: int = 1
    datapoints: int | None = None


# The highest value of a period counts. The period is short, so that the check that clears an alarm is in a period of
# its own. Of the latest minutes, one at the threshold is enough: a data point may be the only one of its day, and it
# reaches CloudWatch through a log, which may take minutes.
OF_GAUGES = Evaluation(Duration.minutes(1), periods=10, datapoints=1)

Subjects = Mapping[str, float | None]
"""Pipelines, sources or state machines that have an alarm, with the limit of each, if it has one of its own."""


def pipelines(_: Settings, project: Project) -> Subjects:
    """All pipelines."""
    return dict.fromkeys(sorted(project.pipelines))


def pulled_sources(_: Settings, project: Project) -> Subjects:
    """The sources whose files are pulled."""
    return dict.fromkeys(name for name, source in sorted(project.sources.items()) if source.pull)


def read_sources(_: Settings, project: Project) -> Subjects:
    """The sources that daily pipelines read: their checks know the rest of what alarms watch of sources."""
    return dict.fromkeys(sorted({name for pipeline in project.daily.values() for name in pipeline.sources}))


def counted_sources(settings: Settings, project: Project) -> Subjects:
    """The sources that pipelines read and whose partners report how many events they have sent."""
    return dict.fromkeys(name for name in read_sources(settings, project) if project.source(name).counts)


def state_machines(_: Settings, __: Project) -> Subjects:
    """The state machines besides those of pipelines and the monitor, which has its own alarm."""
    return dict.fromkeys((PULL_MACHINE, COMPARE_MACHINE, BACKFILL_MACHINE))


def silent_after(settings: Settings, project: Project) -> Subjects:
    """The sources that pipelines read, with the hours of silence that their definitions allow."""
    return {name: project.source(name).silent_hours for name in read_sources(settings, project)}


def recorded_sources(_: Settings, project: Project) -> Subjects:
    """The sources whose removed files are recorded."""
    return dict.fromkeys(name for name in sorted(project.sources) if project.records_removed(name))


def limited_pipelines(_: Settings, project: Project) -> Subjects:
    """The pipelines with a budget."""
    definitions = sorted(project.pipelines.items())
    return dict.fromkeys(name for name, pipeline in definitions if pipeline.late.budget_per_day is not None)


def cost_limits(settings: Settings, project: Project) -> Subjects:
    """All pipelines with the limit of a day's cost, in USD, if the settings have one."""
    limit = settings.alarm_usd_per_day
    return {} if limit is None else dict.fromkeys(sorted(project.pipelines), limit)


def queue_limits(settings: Settings, project: Project) -> Subjects:
    """All pipelines with the limit of a job's minutes in the queue."""
    return dict.fromkeys(sorted(project.pipelines), settings.alarm_queue_minutes)


def checked_pipelines(settings: Settings, project: Project) -> Subjects:
    """The pipelines whose missing check an alarm can notice."""
    # Without a scheduler the deployment does not start the monitor, so its absence is no reason for an alarm. An alarm
    # that cannot count long enough would fire between any two checks.
    found = [] if settings.schedule is Scheduler.NONE else sorted(project.pipelines)
    return {name: None for name in found if between_checks(project, name).periods <= _MAX_HOURS}


def every_hour(_: Project, __: str) -> Evaluation:
    """Return one period of an hour, so that a pull of every hour that fails each time fires its alarm once."""
    return Evaluation(Duration.hours(1))


def between_checks(project: Project, pipeline: str) -> Evaluation:
    """Return the hours for which the check of a pipeline may be missing, as periods."""
    days = _most_days_between(project.pipelines[pipeline].schedule.monitor)
    return Evaluation(Duration.hours(1), periods=days * 24 + _MORE_HOURS_BETWEEN_CHECKS)


def several_pulls(project: Project, source: str) -> Evaluation:
    """Return several periods with one pull each; one pull is enough where such periods were too long for an alarm."""
    _, hour, *days = project.source(source).require_pull().schedule.split()
    if hour == "*":
        return Evaluation(Duration.hours(1), _PULLS_IN_A_ROW, _PULLS_IN_A_ROW)
    year = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(366)]
    pulls = "".join("x" if cron_matches(" ".join(("0", "0", *days)), day) else "-" for day in year)
    weeks = (pulls[first : first + 7] for first in range(len(year) - 6))
    if not all("x" * _PULLS_IN_A_ROW in week for week in weeks):
        return OF_GAUGES
    return Evaluation(Duration.days(1), _PULLS_IN_A_ROW, _PULLS_IN_A_ROW)


@cache
def _most_days_between(schedule: Cron) -> int:
    """Return how many days are at most between two days of a schedule."""
    _, _, *days = schedule.split()
    first = datetime(2024, 1, 1, tzinfo=UTC)
    # Eight years, so that also the 29th of February has two days.
    span = (first + timedelta(days=day) for day in range(8 * 366))
    matching = [day for day in span if cron_matches(" ".join(("0", "0", *days)), day)]
    return max(((later - day).days for day, later in pairwise(matching)), default=_MAX_HOURS)
