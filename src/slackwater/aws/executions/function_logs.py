"""The log lines of Lambda functions in CloudWatch Logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slackwater.aws.failures import translated

MAX_LINES = 10_000
"""Lines of one function that `FunctionLogs.lines` returns at most: as many as one page of CloudWatch Logs has."""


class FunctionLine(NamedTuple):
    """One line that a function has written."""

    at: datetime
    """When the line was written, in milliseconds."""
    message: str


@dataclass(frozen=True, kw_only=True)
class FunctionLogs:
    """Reads the lines of a deployment's functions with a client of CloudWatch Logs."""

    logs: Any
    prefix: str
    """The prefix of the deployment, with which the names of its functions begin."""

    def lines(self, function: str, *, containing: str, start: datetime, end: datetime) -> Iterator[FunctionLine]:
        """Generate the lines of a function that contain a string, from `start` to `end`, oldest first.

        `function` is its name without the prefix, such as `freeze-inputs`. At most `MAX_LINES` lines are read. Raises
        `AccessDenied` without the permission `logs:FilterLogEvents`, and `CloudError`.
        """
        group = f"/aws/lambda/{self.prefix}-{function}"
        with translated(f"read the log group {group}"):
            pages = self.logs.get_paginator("filter_log_events").paginate(
                logGroupName=group,
                filterPattern=filter_pattern(containing),
                startTime=_milliseconds(start),
                endTime=_milliseconds(end),
                PaginationConfig={"MaxItems": MAX_LINES},
            )
            for page in pages:
                for event in page["events"]:
                    if containing in event["message"]:
                        yield FunctionLine(datetime.fromtimestamp(event["timestamp"] / 1000, UTC), event["message"])


def filter_pattern(value: str) -> str:
    """Return a pattern of CloudWatch Logs that matches every line with this string, and perhaps others."""
    # A quoted term of the pattern cannot contain every character, and JSON escapes some of them in the line.
    parts = re.findall(r"[A-Za-z0-9_.:/@+-]+", value)
    return f'"{max(parts, key=len)}"' if parts else ""


def _milliseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)
