"""Reads metrics from log lines in CloudWatch's embedded metric format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

_MAX_VALUES = 100  # of one metric in one line, by the format's specification


class MetricDatum(NamedTuple):
    """The values that one line has for one metric and one set of dimensions."""

    namespace: str
    name: str
    dimensions: dict[str, str]
    unit: str
    timestamp: float
    """Seconds since the epoch."""
    values: tuple[float, ...]


def read_metrics(line: str) -> Iterator[MetricDatum]:
    """Yield the metrics of a log line; none when the line is not a document of the format.

    The metadata names metrics and dimensions; their values are members of the document. A metric is a number or a list
    of numbers, a dimension a string. Metrics without such values are skipped.
    """
    if '"_aws"' not in line:
        return
    try:
        document = json.loads(line)
        timestamp = document["_aws"]["Timestamp"] / 1000  # from milliseconds
        declared = [
            (directive["Namespace"], metric["Name"], metric.get("Unit", "None"), names)
            for directive in document["_aws"]["CloudWatchMetrics"]
            for metric in directive["Metrics"]
            for names in directive["Dimensions"] or [[]]
        ]
    except (ValueError, KeyError, TypeError):
        return
    for namespace, name, unit, names in declared:
        values = _read_values(document.get(name))
        dimensions = {key: document[key] for key in names if isinstance(document.get(key), str)}
        if values and len(dimensions) == len(names):
            yield MetricDatum(namespace, name, dimensions, unit, timestamp, values)


def _read_values(value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    numeric = all(isinstance(item, int | float) and not isinstance(item, bool) for item in values)
    return tuple(float(item) for item in values) if numeric and len(values) <= _MAX_VALUES else ()
