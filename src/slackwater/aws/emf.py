"""Metrics in CloudWatch's embedded metric format: a line in a function's log, which CloudWatch turns into a metric."""

from __future__ import annotations

from collections.abc import Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics

from slackwater.metrics import NAMESPACE, Metric


def put_metric(metric: Metric, value: float, *, pipeline: str | None = None, source: str | None = None) -> None:
    """Write one line with the value to standard output.

    Raises `ValueError` unless exactly the metric's own dimension is given, `pipeline` or `source`.
    """
    dimensions = {name: value for name, value in (("pipeline", pipeline), ("source", source)) if value is not None}
    if list(dimensions) != [metric.dimension.value]:
        raise ValueError(f"{metric} has the dimension {metric.dimension}, not {', '.join(dimensions) or 'none'}")
    # Without a service name, powertools would add the one from the environment as another dimension.
    line = EphemeralMetrics(namespace=NAMESPACE, service="", default_dimensions=dimensions)
    line.add_metric(name=metric.value, unit=metric.unit.value, value=value)
    line.flush_metrics()


def put_counts(counts: Mapping[Metric, int], *, source: str) -> None:
    """Write a line for each count of a source that is not zero."""
    for metric, count in counts.items():
        if count:
            put_metric(metric, count, source=source)
