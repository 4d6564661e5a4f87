"""Metrics in CloudWatch's embedded metric format: a line in a function's log, which CloudWatch turns into a metric."""

from __future__ import annotations

from collections.abc import Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics

from slackwater.metrics import Metric


def put_metric(metric: Metric, value: float, *, pipeline: str | None = None, source: str | None = None) -> None:
    """Write one line with the value to standard output. The line names the subject, also if it is no dimension.

    The namespace is `POWERTOOLS_METRICS_NAMESPACE`, which names the deployment.

    Raises `ValueError` unless exactly the metric's own subject is given, `pipeline` or `source`.
    """
    candidates = {"pipeline": pipeline, "source": source}
    subjects = {name: subject for name, subject in candidates.items() if subject is not None}
    if list(subjects) != [metric.subject.value]:
        raise ValueError(f"{metric} belongs to a {metric.subject}, not to {', '.join(subjects) or 'none'}")
    dimensions = subjects if metric.has_dimension else {}
    # Powertools adds POWERTOOLS_SERVICE_NAME as another dimension unless the service name is given, even if empty.
    line = EphemeralMetrics(service="", default_dimensions=dimensions)
    line.add_metric(name=metric.value, unit=metric.unit.value, value=value)
    if not metric.has_dimension:
        line.add_metadata(metric.subject.value, subjects[metric.subject.value])
    line.flush_metrics()


def put_counts(counts: Mapping[Metric, int], *, source: str) -> None:
    """Write a line for each count of a source that is not zero."""
    for metric, count in counts.items():
        if count:
            put_metric(metric, count, source=source)
