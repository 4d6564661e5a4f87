"""`slackwater verdict`: say that the data of an hour or a day is good, or not."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown_in
from slackwater.cli.options import argument, option, period_option
from slackwater.cli.output import print_note, print_text
from slackwater.errors import InputError, UnknownName

if TYPE_CHECKING:
    from slackwater.client.verdicts import GivenVerdict


class Quality(StrEnum):
    """Whether data is good."""

    FAIL = "fail"
    PASSES = "pass"


@command(
    'slackwater verdict clicks --hour 2026-01-01T15 fail --reason "bots: ten times as many clicks"',
    'slackwater verdict clicks --hour 2026-01-01T15 pass --reason "the partner has corrected the file"',
    'slackwater verdict daily_delays --date 2013-03-10 fail --reason "half of the carriers are missing"',
    writes=True,
)
def verdict(
    name: Annotated[str, argument("NAME", "A source or a pipeline of the project.")],
    quality: Annotated[Quality, argument("VERDICT", "Whether the data is good.")],
    *,
    hour: Annotated[
        str | None, option("--hour", metavar="HOUR", text="A UTC hour of a source or of an hourly pipeline.")
    ] = None,
    day: Annotated[
        str | None,
        period_option("--date", text="A day or hour of a pipeline, or all hours of a source's local day."),
    ] = None,
    reason: Annotated[str, option("--reason", metavar="TEXT", text="Why. It is kept with the verdict.")],
    session: Session,
) -> Result:
    """Say that the data of an hour or a day has failed, or passes.

    The newest verdict about a period decides, so a pass clears a fail. Waiting runs of pipelines with `when.quality`
    start only without a fail. A verdict about a day of a pipeline is about its published version: a later version has
    none. slackwater state lists the periods that have failed, with the reasons. If a source and a pipeline have the
    name, --date is a day of the pipeline.
    """
    if (hour is None) == (day is None):
        raise InputError("--hour, --date: give one of them: a UTC hour, or a day")
    known = sorted({*session.project.sources, *session.project.known_names})
    if name not in known:
        raise UnknownName(f"NAME: no source or pipeline {name!r} in this project (it has {', '.join(known)})")
    given = session.client.verdict(name, quality.value, reason=reason, hour=hour, date=day)
    document = {**given.model_dump(), "verdicts": [each.document for each in given.verdicts]}
    return Result(document, lambda: _print(given))


def _print(given: GivenVerdict) -> None:
    from slackwater.client.results import describe_verdicts

    style = "green" if given.verdicts[0].quality == "pass" else "red"
    for line in describe_verdicts(given.verdicts):
        print_text(shown_in(line), style=style)
    if given.read_by:
        print_text(f"  read by {', '.join(given.read_by)}: their published days are checked (late.on_invalid)")
    waiting = ", ".join(given.obeyed_by) or "no pipeline"
    print_text(f"  waiting runs of {waiting} obey it (when.quality)")
    if given.note:
        print_note(given.note, style="yellow")
