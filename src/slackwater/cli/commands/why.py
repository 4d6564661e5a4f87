"""`slackwater why`: what is published for a day, what has come since, and what a check decides about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown, shown_in
from slackwater.cli.options import PipelineName, period_option
from slackwater.client.arguments import check_begun, check_runs
from slackwater.formatting import counted, timestamp

if TYPE_CHECKING:
    from slackwater.client.waiting import InputWait
    from slackwater.client.why import InputData, Why

_WIDTH = 12


@command("slackwater why daily_delays --date 2013-03-10", "slackwater why daily_delays --date 2013-03-10 --json")
def why(
    pipeline: PipelineName,
    date: Annotated[str, period_option(text="The day, in the pipeline's timezone.")],
    *,
    as_of: Annotated[
        str | None,
        period_option(text="Explain what a check of this day or hour decides, as `monitor --as-of`. Default: now."),
    ] = None,
    session: Session,
) -> Result:
    """Explain a day: why it runs again, waits, or stays as it is.

    Shows what is published and from what, what has come since, which rule of docs/late-data.md decides about the day,
    when it is looked at again, and what would run it now. Nothing runs, and nothing is recorded.
    """
    timezone = session.project.pipeline(pipeline).timezone
    check_runs(date, session.project.pipeline(pipeline), name="--date")
    if as_of:
        check_begun(as_of, timezone, name="--as-of")
    answer = session.client.why(pipeline, date, as_of=as_of)
    return Result(answer.model_dump(mode="json"), "\n".join(map(shown_in, _lines(answer))))


def _lines(day: Why) -> Iterator[str]:
    """Yield what people see."""
    yield f"{shown(day.pipeline)} {day.date}"
    published = day.published
    if published:
        version = f"version {published.attempt}, {timestamp(published.at)}, {counted(published.rows, 'row')}"
        inputs = list(map(_input_line, published.inputs))
        yield from _section("published", [f"{version}, from" if inputs else version, *inputs])
        yield from _section("ran without", day.missing)
        # Without figures, the inputs were not compared.
        unchanged = "nothing" if day.decision.figures else "not compared"
        since = [f"{item.text}{_last(item)}" for item in day.late]
        yield from _section("since then", since or [unchanged])
    else:
        yield from _section("published", ["nothing"])
        yield from _section("data", list(map(_input_line, day.inputs)))
    yield from _section("failed data", [line for item in day.failed for line in item.lines])
    if day.error:
        yield from _section("last attempt", [f"failed: {day.error}"])
    decision = day.decision
    reasons = [reason for reason in decision.reasons if reason != day.rule]
    yield from _section("decision", [f"{decision.decision}, by the rule {decision.rule}: {day.rule}", *reasons])
    if day.wait:
        yield from _section("inputs", list(_wait_lines(day.wait)))
    yield from _section("next check" if published else "waits for", [day.next_look.text])
    first, *others = day.run_now
    yield from _section("to run it", [first, *(f"or {other}" for other in others)])


def _wait_lines(wait: InputWait) -> Iterator[str]:
    """Yield what a scheduled run waits for, and since when."""
    for run in wait.runs:
        yield f"a run waits since {timestamp(run.since)}{' for:' if wait.unmet else ''}"
    if not wait.unmet:
        yield "all that `when` of the pipeline names is there"
    elif not wait.runs:
        yield f"a scheduled run would wait for what follows; {wait.end}"
    yield from (f"{item.input}: {item.text}" for item in wait.unmet)


def _section(label: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines with the label before the first one."""
    for index, line in enumerate(lines):
        yield f"  {'' if index else label:{_WIDTH}}  {line}"


def _input_line(item: InputData) -> str:
    if not item.objects:
        return f"{item.name}: nothing has arrived"
    files = f" of {counted(item.files, 'file')}" if item.files else ""
    return f"{item.name}: {counted(item.rows, 'row')} in {counted(item.objects, 'object')}{files}{_last(item)}"


def _last(item: InputData) -> str:
    return f", the last one at {timestamp(item.last_arrival)}" if item.last_arrival else ""
