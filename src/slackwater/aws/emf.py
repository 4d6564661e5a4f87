"""Metrics by CloudWatch's embedded metric format: a line in a function's log, of which CloudWatch makes the metric."""

from __future__ import annotations

from aws_lambda_powertools.metrics import EphemeralMetrics

from slackwater.metrics import NAMESPACE, Metric


def put_metric(metric: Metric, value: float, *, pipeline: str | None = None, source: str | None = None) -> None:
    """Write one line to standard output that puts `value` now. Raises `ValueError` unless the dimension is its own."""
    given = {name: of for name, of in (("pipeline", pipeline), ("source", source)) if of is not None}
    if list(given) != [metric.dimension.value]:
        raise ValueError(f"{metric} is put for one {metric.dimension}, not for {given or 'nothing'}")
    # Without a service: powertools would take the function's name from the environment, as one more dimension.
    line = EphemeralMetrics(namespace=NAMESPACE, service="", default_dimensions=given)
    line.add_metric(name=metric.value, unit=metric.unit.value, value=value)
    line.flush_metrics()
