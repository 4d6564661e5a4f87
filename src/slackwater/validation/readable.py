"""The parts of a pipeline that could be read although others are faulty, so that these parts are checked as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.pipeline.definition import Late, Pipeline, Publish, StepUse
from slackwater.pipeline.table_inputs import AnyTableInput, IcebergInput, TableInput


def readable_pipeline(value: Any) -> Pipeline:
    """Return a pipeline that was not validated, with all names and steps in the content of a file.

    A name that cannot be read is an empty string, and other values that cannot be read are missing.
    """
    content = _mapping(value)
    publish, late = _mapping(content.get("publish")), _mapping(content.get("late"))
    return Pipeline.model_construct(
        pipeline=_name(content.get("pipeline")),
        sources=_names(content.get("sources")),
        tables={str(name): _table(_mapping(table)) for name, table in _mapping(content.get("tables")).items()},
        steps=_uses(content.get("steps")),
        publish=Publish.model_construct(
            step=_name(publish.get("step")),
            key=_names(publish.get("key")),
            metrics={str(name): value for name, value in _mapping(publish.get("metrics")).items()},
            hour=_name(publish.get("hour")) or None,
        ),
        load=_uses(content.get("load")),
        late=Late.model_construct(
            thresholds={str(name): value for name, value in _mapping(late.get("thresholds")).items()}
        ),
    )


def _table(table: Mapping[str, Any]) -> AnyTableInput:
    if "iceberg" in table:
        return IcebergInput.model_construct(iceberg=_name(table["iceberg"]), location=_name(table.get("location")))
    return TableInput.model_construct(table=_name(table.get("table")))


def _uses(value: Any) -> dict[str, StepUse]:
    return {str(name): _use(_mapping(use)) for name, use in _mapping(value).items()}


def _use(use: Mapping[str, Any]) -> StepUse:
    return StepUse.model_construct(
        step=_name(use.get("step")),
        depends_on=_names(use.get("depends_on")),
        parameters=dict(_mapping(use.get("with"))),
        exchange=use.get("exchange") is True,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(_name, value)) if isinstance(value, list) else ()


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""
