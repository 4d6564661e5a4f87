from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slackwater.cli.commands.logs import format_log_line
from slackwater.client.days.run_log import LogLine

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "04:37:26.007 INFO    job x          done"),
        (
            {"fields": {"correlation_id": "c", "stage": "x", "rows": 3, "files": ["a"], "by": {"b": None}}},
            '04:37:26.007 INFO    job x          done rows=3 files=["a"] by={"b": null}',
        ),
        (
            {"fields": {"steps": ["a" * 100], "reason": "b" * 100}},
            f'04:37:26.007 INFO    job x          done steps=["{"a" * 78}... reason={"b" * 100}',
        ),
        (
            {"level": "ERROR", "traceback": "Traceback:\n  here"},
            "04:37:26.007 ERROR   job x          done\nTraceback:\n  here",
        ),
        ({"level": "", "message": "a step's print"}, "04:37:26.007         job x          a step's print"),
    ],
)
def test_a_line_has_its_time_level_source_message_and_own_fields(more, expected):
    at = datetime(2026, 11, 21, 4, 37, 26, 7_900, tzinfo=UTC)
    line = LogLine(**({"at": at, "source": "job x", "level": "INFO", "message": "done"} | more))
    assert format_log_line(line, width=len("state machine")) == expected
