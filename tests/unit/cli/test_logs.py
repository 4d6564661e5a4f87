from __future__ import annotations

import json

import pytest

from slackwater.cli.commands.logs import format_log_line

pytestmark = pytest.mark.unit


def test_a_json_line_is_formatted():
    entry = {
        "timestamp": "2026-11-21T04:37:26.123+00:00",
        "level": "ERROR",
        "message": "failed",
        "correlation_id": "c",
        "stage": "joined",
        "traceback": "Traceback:\n  here",
    }
    assert format_log_line(json.dumps(entry)) == "04:37:26 ERROR   failed stage=joined\nTraceback:\n  here"


@pytest.mark.parametrize("line", ["", "plain words", "[1]", '{"a": 1}', "{broken"])
def test_any_other_line_is_unchanged(line):
    assert format_log_line(line) == line
