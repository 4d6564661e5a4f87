"""Files of a day that are not stored yet: the partners of its sources have listed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from zoneinfo import ZoneInfo

from slackwater.formatting import counted
from slackwater.project.project import Project
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.period import Period


def unstored_files(project: Project, pipeline: str, day: Period, *, files: FileCache) -> dict[str, int]:
    """Return the number of files that are not stored, for each source of the pipeline that has any.

    Counts the files of the dates, in the pull's timezone, that the day overlaps. An abandoned file does not count.
    """
    counts = {}
    for name in sorted(project.pipeline(pipeline).sources):
        source = project.source(name)
        if pull := source.pull:
            timezone = ZoneInfo(source.pull_timezone)
            date, last = (at.astimezone(timezone).date() for at in (day.start, day.end - timedelta.resolution))
            # A pattern with a month only has the same names for several dates.
            dates = (date + timedelta(days=days) for days in range((last - date).days + 1))
            patterns = dict.fromkeys(pull.pattern.dated(each) for each in dates)
            recorded = (file for dated in patterns for file in files.files_of_date(name, dated))
            counts[name] = len({file.path for file in recorded if not file.is_taken})
    return {name: count for name, count in counts.items() if count}


def describe_unstored(files: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each source, without a full stop, which names the command that lists the files."""
    for source, count in files.items():
        verb = "was" if count == 1 else "were"
        yield f"{counted(count, 'file')} of {source} {verb} not stored (slackwater files {source} --state failed)"
