"""Read verdicts of partners: JSON documents about a UTC hour of what they have sent.

```json
{"as_of": "2026-01-01T16:05:00Z", "hour": "2026-01-01T15", "quality": "fail", "reason": "a test system has sent it"}
```
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, Field, ValidationError

from slackwater.errors import DataError
from slackwater.formatting import counted, escape_control_characters, timestamp
from slackwater.model import Model
from slackwater.state.facts import KEPT
from slackwater.state.reports import SKEW
from slackwater.state.verdicts import Quality, Subject, Verdict, failures, new_verdict

_EXAMPLE = '{"as_of": "2026-01-01T16:05:00Z", "hour": "2026-01-01T15", "quality": "fail", "reason": "bots"}'


class VerdictRefused(DataError):
    """The verdict is refused; nothing is stored."""

    status, code = 400, "unreadable_verdict"


class _Document(Model):
    as_of: AwareDatetime
    hour: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d$")]
    quality: Quality
    reason: Annotated[str, Field(pattern=r"\S", max_length=1000)]


def changes_something(verdict: Verdict, before: Iterable[Verdict]) -> bool:
    """Return whether another `fail` stands about a period after a verdict, or one has another reason.

    `before` are the verdicts that are stored about the period. If this one is among them, it is left out: a repeated
    request gets the answer of the first one, which may have ended before it told anybody.
    """
    others = [each for each in before if each.id != verdict.id]
    return _standing(others) != _standing([*others, verdict])


def _standing(verdicts: Iterable[Verdict]) -> set[tuple[str, str]]:
    """Return who has given a `fail` that stands, and why: when it was given is no difference."""
    return {(verdict.giver, verdict.reason) for verdict in failures(verdicts)}


def read_verdict(body: bytes, source: str, *, principal: str, now: datetime) -> Verdict:
    """Return the verdict in a JSON document about an hour of a source; `now` is the present instant.

    The same document gives the same verdict. Raises `VerdictRefused`, which names the field.
    """
    try:
        document = _Document.model_validate_json(body)
        start = datetime.fromisoformat(f"{document.hour}:00:00+00:00")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "the body"
        raise VerdictRefused(f"{field}: {first['msg']}: send {_EXAMPLE}") from error
    except ValueError as error:
        raise VerdictRefused(f"hour: {document.hour} is no UTC hour: send one such as 2026-01-01T15") from error
    if escape_control_characters(document.reason) != document.reason:
        raise VerdictRefused("reason: it has a line feed or another control character: send one line")
    try:
        as_of = document.as_of.astimezone(UTC)
    except OverflowError as error:
        raise VerdictRefused(f"as_of: {document.as_of.isoformat()} is not in a year from 1 to 9999, UTC") from error
    if abs(as_of - now) > SKEW:
        # A later verdict of a person would hide it, and nobody would know.
        raise VerdictRefused(
            f"as_of: {as_of.isoformat()} is more than {SKEW.seconds // 60} minutes from now, {timestamp(now)}: decide "
            "again, and send when that was"
        )
    if not now - KEPT <= start <= now:
        raise VerdictRefused(
            f"hour: {document.hour} has not begun, or is more than {counted(KEPT.days, 'day')} ago, for which verdicts "
            "are not kept"
        )
    return new_verdict(
        Subject("source", source),
        document.hour,
        document.quality,
        version=None,
        reason=document.reason,
        principal=principal,
        giver=principal,
        at=as_of,
    )
