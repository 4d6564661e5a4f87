"""Rejections as plain Python values."""

from __future__ import annotations

import pyarrow as pa

from slackwater.receiver.parsing.rejections import Rejection, RejectionRule


def by_index(rejections: pa.Table) -> dict[int, Rejection]:
    """Return the rejections of a column or of events by index."""
    return {row["index"]: Rejection(RejectionRule(row["rule"]), row["reason"]) for row in rejections.to_pylist()}
