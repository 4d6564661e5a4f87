"""What the versions of a day have changed, and whether people know: read from the stored comparisons."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from slackwater.errors import ObjectMissing
from slackwater.late.changes.pairs import comparison_uri, comparisons_prefix, message_uri, stored_pairs
from slackwater.late.comparison import Comparison, MetricChange
from slackwater.late.documents import OnUnreadable, read_document
from slackwater.late.effect import change_percent
from slackwater.late.report.message import Message
from slackwater.storage import ObjectStore


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What the version of a run has changed in the output."""

    rows_differing: int | None = None
    """None without a comparison that this release can read. So are the fields of the metric."""
    metric: str | None = None
    metric_change_percent: float | None = None
    notified: bool = False


def effects_of_day(
    store: ObjectStore,
    *,
    exchange_bucket: str,
    pipeline: str,
    date: str,
    attempts: Collection[int],
    on_unreadable: OnUnreadable,
) -> dict[int, Effect]:
    """Return the effects of these attempts of a day, an ISO date, with one listing; an empty one without a comparison.

    A version may have been compared with several earlier ones. The effect is that of the comparison with the latest of
    them, and people were notified if any of the comparisons has a message that was sent and can be read.
    """
    # Those with the latest earlier version first.
    compared: dict[int, list[str]] = {attempt: [] for attempt in attempts}
    for pair in reversed(stored_pairs(store, comparisons_prefix(exchange_bucket, pipeline, date))):
        if pair.after in compared and comparison_uri(pair.prefix) in pair.uris:
            compared[pair.after].append(pair.prefix)
    return {attempt: _effect(store, prefixes, on_unreadable) for attempt, prefixes in compared.items()}


def _effect(store: ObjectStore, pairs: Sequence[str], on_unreadable: OnUnreadable) -> Effect:
    """Return the effect by the first comparison that can be read, of the pairs with these URI prefixes."""
    messages = (read_document(store, message_uri(prefix), Message, on_unreadable=on_unreadable) for prefix in pairs)
    notified = any(message and message.message_id is not None for message in messages)
    for prefix in pairs:
        try:
            comparison = Comparison.model_validate_json(store.get(comparison_uri(prefix)))
        except (ObjectMissing, ValidationError):  # stored by a release with other fields
            continue
        metric, percent = largest_change(comparison.metrics)
        return Effect(
            rows_differing=comparison.rows.differing, metric=metric, metric_change_percent=percent, notified=notified
        )
    return Effect(notified=notified)


def largest_change(metrics: Sequence[MetricChange]) -> tuple[str | None, float | None]:
    """Return the metric whose total has changed most, and its change in percent of the earlier total.

    The percentage is None for a total that was 0 or missing before, or is missing now: such a change is the largest.
    """
    changes = {item.metric: change_percent(item) for item in metrics if item.moved}
    if not changes:
        return None, None
    metric = max(changes, key=lambda name: abs(changes[name]))
    return metric, changes[metric] if math.isfinite(changes[metric]) else None
