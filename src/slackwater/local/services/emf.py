"""Reads metrics from log lines in CloudWatch's embedded metric format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

# The format's specification allows this number of values for one metric in one line.
_MAX_VALUES = 100


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
    if '"_aws"' not in line:  # most lines are plain log lines; parsing all of them would slow functions down
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
        value = document.get(name)
        values = value if isinstance(value, list) else [value]
        # In Python, true and false are ints.
        numeric = all(isinstance(item, int | float) and not isinstance(item, bool) for item in values)
        dimensions = {key: document[key] for key in names if isinstance(document.get(key), str)}
        if numeric and 0 < len(values) <= _MAX_VALUES and len(dimensions) == len(names):
            yield MetricDatum(namespace, name, dimensions, unit, timestamp, tuple(float(item) for item in values))
