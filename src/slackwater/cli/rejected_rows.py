"""`slackwater sideline PIPELINE`: the rows that the steps of a published run have rejected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from slackwater.cli.command import Result, Session
from slackwater.cli.names import shown
from slackwater.cli.output import cut, print_table, print_text, to_json_value
from slackwater.errors import InputError
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.days.rejected_rows import RejectedRow


def list_rejected_rows(session: Session, pipeline: str, date: str | None) -> Result:
    """Count the rows that the published run of a day has rejected, by step and rule, each with the first row.

    Raises `InputError` without a date, and for a day without a published run.
    """
    if date is None:
        raise InputError(f"--date: {pipeline} is a pipeline: give the day whose published run has rejected rows")
    counts: dict[tuple[str, str, str], int] = {}
    first: dict[tuple[str, str, str], RejectedRow] = {}
    for row in session.client.rejected_rows(pipeline, date):
        key = (row.step, row.rule, row.reason)
        counts[key] = counts.get(key, 0) + 1
        first.setdefault(key, row)
    rules = [
        {"step": step, "rule": rule, "reason": reason, "rejected": number, "example": first[step, rule, reason].row}
        for (step, rule, reason), number in counts.items()
    ]
    attempt = next((row.attempt for row in first.values()), None)

    def view() -> None:
        print_text(f"{shown(pipeline)} {date}, attempt {attempt}: {counted(sum(counts.values()), 'row')} rejected")
        rows = [(*key, number, cut(json.dumps(to_json_value(first[key].row)))) for key, number in counts.items()]
        print_table(("step", "rule", "reason", "rejected", "first row"), rows)

    document = {"pipeline": pipeline, "date": date, "attempt": attempt, "rules": rules}
    return Result(document, view if rules else f"the published run of {shown(pipeline)} {date} has rejected no rows")
