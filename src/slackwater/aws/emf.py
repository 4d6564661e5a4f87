"""Metrics in CloudWatch's embedded metric format: a line in a function's log, which CloudWatch turns into a metric."""

from __future__ import annotations

from collections.abc import Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics

from slackwater.metrics import NAMESPACE, Metric


def put_metric(metric: Metric, value: float, *, pipeline: str | None = None, source: str | None = None) -> None:
    """Write one line with the value to standard output.

    Raises `ValueError` unless exactly the metric's own dimension is given, `pipeline` or `source`.
    """
    candidates = {"pipeline": pipeline, "source": source}
    dimensions = {name: subject for name, subject in candidates.items() if subject is not None}
    if list(dimensions) != [metric.dimension.value]:
        raise ValueError(f"{metric} has the dimension {metric.dimension}, not {', '.join(dimensions) or 'none'}")
    # Powertools adds POWERTOOLS_SERVICE_NAME as another dimension unless the service name is given, even if empty.
    line = EphemeralMetrics(namespace=NAMESPACE, service="", default_dimensions=dimensions)
    line.add_metric(name=metric.value, unit=metric.unit.value, value=value)
    line.flush_metrics()


def put_counts(counts: Mapping[Metric, int], *, source: str) -> None:
    """Write a line for each count of a source that is not zero."""
    for metric, count in counts.items():
        if count:
            put_metric(metric, count, source=source)
