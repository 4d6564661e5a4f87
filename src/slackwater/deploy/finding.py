"""What a check found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import Any

from slackwater.errors import SlackwaterError

Clients = Callable[[str], Any]
"""Returns the AWS client of a service."""
_NOTICE = timedelta(days=180)


class Status(StrEnum):
    """Status of a check."""

    OK = "ok"
    WARNING = "warning"
    """It works, but with a limitation, or not for long."""
    FAILED = "failed"
    NOT_CHECKED = "not checked"
    """AWS did not answer the question, for example because the caller may not ask it."""


@dataclass(frozen=True)
class Finding:
    """What a check found, and what to do (empty if nothing)."""

    status: Status
    found: str
    remedy: str = ""


Findings = dict[str, Finding]
"""Findings by the name of the check, in order."""


def ok(found: str) -> Finding:
    """Return the finding that nothing has to be done."""
    return Finding(Status.OK, found)


def warning(found: str, remedy: str) -> Finding:
    """Return the finding of a limitation."""
    return Finding(Status.WARNING, found, remedy)


def failed(found: str, remedy: str) -> Finding:
    """Return the finding of a fault."""
    return Finding(Status.FAILED, found, remedy)


def not_checked(reason: str) -> Finding:
    """Return the finding that the check was not possible."""
    return Finding(Status.NOT_CHECKED, reason)


def supported_until(what: str, end: date | None, *, today: date, remedy: str) -> Finding:
    """Return the finding about something that AWS supports until `end`; None if that is not known."""
    if end is None:
        return not_checked(f"it is not known how long AWS supports {what}")
    found = f"{what}, which AWS supports until {end}"
    if today > end:
        return failed(found, remedy)
    return warning(found, remedy) if today + _NOTICE > end else ok(found)


def run_checks(checks: Mapping[str, Callable[[], Finding]]) -> Findings:
    """Run checks. One that AWS does not answer is `not checked`, with the reason."""
    findings = {}
    for name, check in checks.items():
        try:
            findings[name] = check()
        except SlackwaterError as error:
            findings[name] = not_checked(str(error))
    return findings
