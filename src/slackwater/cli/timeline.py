"""How a run's timeline is shown: a table by stage and step, bars on a terminal, and the slowest step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from slackwater.cli.names import shown
from slackwater.cli.output import print_table, print_text
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.days.timeline import StageTime, Timeline

_COLUMNS = ("stage", "step", "state", "start", "waiting", "starting", "working", "rows in", "rows out")
_LONGEST_BAR = 60
_SHORTEST_BAR = 10


def show_timeline(timeline: Timeline) -> None:
    """Print the timeline: one line for each stage, and below it one for each of its steps."""
    run, total = timeline.record.run, timeline.seconds.total
    title = f"{shown(run.pipeline)} {run.date}, attempt {run.attempt}: {timeline.record.state.value}, {total:g} s"
    if not timeline.stages:
        print_text(f"{title}, no stage has started")
    else:
        print_table(_COLUMNS, [row for stage in timeline.stages for row in _rows(stage)], title=title)
    if sys.stdout.isatty():
        name_width = max((len(stage.stage) for stage in timeline.stages), default=0)
        width = min(get_terminal_size().columns - name_width - 1, _LONGEST_BAR)
        lines = bars(timeline.stages, total, width=max(width, _SHORTEST_BAR))
        if lines:
            print_text("\n".join((*lines, ". waiting  - starting Spark  # working  = starting or working")))
    if timeline.slowest:
        name, seconds, together = timeline.slowest
        others = f", together with {counted(together - 1, 'other step')} of its stage" if together > 1 else ""
        print_text(f"slowest step: {name} ({seconds:.1f} s{others})")
    orchestration = timeline.seconds.orchestration
    if orchestration is not None:
        share = f" ({100 * orchestration / total:.0f} %)" if total else ""
        print_text(f"orchestration: {orchestration:.1f} s{share}")
    for sentence in timeline.missing:
        print_text(f"not read: {sentence}", style="yellow")


def _rows(stage: StageTime) -> list[tuple[object, ...]]:
    state = f"kept from attempt {stage.kept_from}" if stage.state == "kept" else stage.state
    times = (stage.start, stage.waiting, stage.starting, stage.working)
    rows: list[tuple[object, ...]] = [(stage.stage, None, state, *times, stage.rows_in, stage.rows_out)]
    for step in stage.steps:
        name = step.name if step.name == step.step else f"{step.name} ({step.step})"
        seconds = None if step.seconds is None else round(step.seconds, 1)
        rows.append((None, name, None, None, None, None, seconds, step.rows_in, step.rows_out))
    return rows


def bars(stages: Sequence[StageTime], total: float, *, width: int) -> list[str]:
    """Return a line for each stage that had a job, `width` characters for `total` seconds.

    `.` stands for waiting, `-` for the start and the stop of Spark, `#` for work, and `=` for a job that has not
    ended successfully, of which only the start is known.
    """
    lines: list[str] = []
    name_width = max((len(stage.stage) for stage in stages), default=0)
    for stage in stages:
        if stage.start is None or stage.seconds is None or not total:
            continue
        waiting, at = stage.waiting or 0.0, stage.start
        if stage.starting is None:
            parts = [(waiting, "."), (stage.seconds - waiting, "=")]
        else:
            parts = [(waiting, "."), (stage.starting, "-"), (stage.working or 0.0, "#")]
        bar = " " * round(at / total * width)
        for seconds, character in parts:
            at += seconds
            # Rounded at the end of each part, so that the errors do not add up.
            bar = bar.ljust(round(at / total * width), character)
        lines.append(f"{stage.stage.ljust(name_width)} {bar[:width]}".rstrip())
    return lines


def timeline_document(timeline: Timeline) -> dict[str, Any]:
    """Return the timeline as JSON values, without the run's record."""
    slowest = timeline.slowest._asdict() if timeline.slowest else None
    return {
        "begin": timeline.begin,
        "seconds": asdict(timeline.seconds),
        "stages": [asdict(stage) for stage in timeline.stages],
        "slowest": slowest,
        "missing": list(timeline.missing),
    }
