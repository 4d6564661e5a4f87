"""The format of rejected events under `sideline/`: the event as the partner sent it, with the rule and the reason."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import orjson

from slackwater.receiver.parsing.event_checks import RejectedEvent
from slackwater.receiver.parsing.rejections import RejectionRule


def rejects_uri(bucket: str, source: str, *, received_at: datetime, batch_id: str) -> str:
    """Return the URI of a batch's rejected events: `received_at`, the first time of receipt, decides its UTC day."""
    date = received_at.astimezone(UTC).date().isoformat()
    return f"{rejects_prefix(bucket, source, date)}{batch_id}.jsonl"


def rejects_prefix(bucket: str, source: str, date: str = "") -> str:
    """Return the URI prefix of a source's rejected events of one day (`2013-03-10`), or of all days without a date."""
    return f"s3://{bucket}/sideline/source={source}/{f'date={date}/' if date else ''}"


def to_jsonl(events: Iterable[RejectedEvent], *, batch_id: str, origin: str, rows: int | None = None) -> bytes:
    """Return rejected events of a batch or file as JSON lines; fields without a value are left out.

    `origin` is `push:<partner>`, or `pull:<path of the partner's file>`. `rows` is for the last example of a file that
    is rejected as a whole: how many rows it stands for, itself and all later ones.
    """
    lines = []
    # What many events have in common is encoded once.
    encoded: dict[tuple[str, RejectionRule], bytes] = {}
    end = b"}\n" if rows is None else b',"rows":%d}\n' % rows
    for event in events:
        common = event.reason, event.rule
        if (middle := encoded.get(common)) is None:
            document = {"reason": event.reason, "rule": event.rule, "batch_id": batch_id, "origin": origin}
            middle = encoded[common] = orjson.dumps(document)[1:-1]
        line = b"" if event.line is None else b'"line":%d,' % event.line
        lines.append(b'{"index":%d,%b%b,"text":%b%b' % (event.index, line, middle, orjson.dumps(event.text or ""), end))
    return b"".join(lines)
