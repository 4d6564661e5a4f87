"""CloudWatch's embedded metric format: what a log line says of metrics, read as the format is specified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

_MOST_VALUES = 100


class Datum(NamedTuple):
    """What one line says of one metric with one set of dimensions."""

    namespace: str
    name: str
    dimensions: dict[str, str]
    unit: str
    at: float
    """Seconds since the epoch."""
    values: tuple[float, ...]


class _Definition(BaseModel):
    name: Annotated[str, Field(alias="Name", min_length=1)]
    unit: Annotated[str, Field(alias="Unit")] = "None"


class _Directive(BaseModel):
    namespace: Annotated[str, Field(alias="Namespace", min_length=1)]
    dimensions: Annotated[list[list[str]], Field(alias="Dimensions")]
    metrics: Annotated[list[_Definition], Field(alias="Metrics")]


class _Metadata(BaseModel):
    timestamp: Annotated[int, Field(alias="Timestamp")]
    """Milliseconds since the epoch."""
    directives: Annotated[list[_Directive], Field(alias="CloudWatchMetrics")]


def data(line: str) -> Iterator[Datum]:
    """Yield what a log line says of metrics: nothing, if it is no document of the format.

    A metric stands beside the metadata, under its name, as a number or a list of numbers; so do the dimensions' values,
    as texts. What is named and does not stand there is passed over.
    """
    document, metadata = _read(line)
    if metadata is None:
        return
    for directive in metadata.directives:
        for metric in directive.metrics:
            values = _values(document.get(metric.name))
            for names in directive.dimensions or [[]]:
                dimensions = {name: document[name] for name in names if isinstance(document.get(name), str)}
                if values and len(dimensions) == len(names):
                    at = metadata.timestamp / 1000
                    yield Datum(directive.namespace, metric.name, dimensions, metric.unit, at, values)


def _read(line: str) -> tuple[dict[str, Any], _Metadata | None]:
    if '"_aws"' not in line:
        return {}, None
    try:
        document = json.loads(line)
        return document, _Metadata.model_validate(document["_aws"])
    except (ValueError, KeyError, TypeError, ValidationError):
        return {}, None


def _values(found: Any) -> tuple[float, ...]:
    many = found if isinstance(found, list) else [found]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in many)
    return tuple(float(value) for value in many) if numbers and len(many) <= _MOST_VALUES else ()
