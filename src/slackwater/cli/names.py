"""The names of pipelines as people see them: records have the stored name of a renamed pipeline (decision 40)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

_NO_NAMES: Mapping[str, str] = {}
_names: ContextVar[Mapping[str, str]] = ContextVar("names", default=_NO_NAMES)


def use_names(names: Mapping[str, str]) -> None:
    """Show these present names, by stored name, until the next call: a command calls it for its project."""
    _names.set(names)


def shown(pipeline: str) -> str:
    """Return the present name of a pipeline, which may be given by its stored name."""
    return _names.get().get(pipeline, pipeline)


def shown_in(text: str) -> str:
    """Return a text of a record with the present names of pipelines, where it certainly names one.

    That is after a command, at its begin before a date, and in the path of a definition.
    """
    for stored, present in _names.get().items():
        text = re.sub(rf"(\bslackwater(?: [a-z]+){{1,2}} |\bpipelines/){stored}\b", rf"\g<1>{present}", text)
        text = re.sub(rf"^{stored}(?= (?:for )?\d{{4}}-)", present, text)
    return text


def with_present_names(document: Any) -> Any:
    """Return the document of a command with the present names of pipelines: the values of its keys `pipeline`."""
    if not _names.get():
        return document
    if isinstance(document, Mapping):
        return {
            key: shown(value) if key == "pipeline" and isinstance(value, str) else with_present_names(value)
            for key, value in document.items()
        }
    return [with_present_names(item) for item in document] if isinstance(document, list | tuple) else document
