"""The format of rejected events under `sideline/`: the event as the partner sent it, with the rule and the reason."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.sources.rejected_events import rejects_prefix


def rejects_uri(bucket: str, source: str, *, received_at: datetime, batch_id: str) -> str:
    """Return the URI of a batch's rejected events: `received_at`, the first time of receipt, decides its UTC day."""
    date = received_at.astimezone(UTC).date().isoformat()
    return f"{rejects_prefix(bucket, source, date)}{batch_id}.jsonl"


def to_jsonl(rejections: pa.Table, *, batch_id: str, origin: str, rows: int | None = None) -> bytes:
    """Return rejected events of a batch or file as JSON lines; fields without a value are left out.

    `rejections` is as in `CheckedEvents`. `origin` is `push:<partner>`, or `pull:<path of the partner's file>`. `rows`
    is for the last example of a file that is rejected as a whole: how many rows it stands for, itself and all later
    ones.
    """
    column = {name: rejections[name].combine_chunks() for name in rejections.column_names}
    batch = orjson.dumps({"batch_id": batch_id, "origin": origin})[1:-1].decode()
    lines = pc.binary_join_element_wise(
        '{"index":',
        column["index"].cast(pa.string()),
        pc.binary_join_element_wise(',"line":', column["line"].cast(pa.string()), "").fill_null(""),
        ',"reason":"',
        _escape(column["reason"]),
        '","rule":"',
        column["rule"],
        f'",{batch},"text":"',
        _escape(column["text"].fill_null("")),
        '"}\n' if rows is None else f'","rows":{rows}}}\n',
        "",
    )
    # The lines are one after the other in the buffer of a new array.
    return lines.buffers()[2].to_pybytes() if len(lines) else b""


def _escape(strings: pa.Array) -> pa.Array:
    """Return each string as in JSON, without its quotes."""
    characters = str(strings.buffers()[2] or b"", "utf-8")
    # All characters as one string: usually JSON escapes none of them.
    if orjson.dumps(characters)[1:-1] == characters.encode():
        return strings
    return pa.array((orjson.dumps(string)[1:-1] for string in strings.to_pylist()), pa.string())
