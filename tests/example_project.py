"""The project of `examples/nyc_flights`, read from its files once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from slackwater.project.project import Project, load_project

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "nyc_flights"
PROJECT = ["--project", str(EXAMPLE)]
"""The option by which a command works with it."""


def example_project() -> Project:
    """Return the project with containers of its own: what these hold is immutable."""
    project = _read()
    return project.model_copy(update={"sources": {**project.sources}, "pipelines": {**project.pipelines}})


@cache
def _read() -> Project:
    return load_project(EXAMPLE)
