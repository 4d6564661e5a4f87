"""Where the jobs of an attempt write what they tell the functions: `prefix` is `Run.prefix`."""

from __future__ import annotations


def failure_uri(prefix: str) -> str:
    """Return the URI at which a failed job of an attempt writes its error."""
    return f"{prefix}failure.txt"


def invalid_input_uri(prefix: str) -> str:
    """Return the URI at which a job writes the input that a rule of severity `invalidate` has refused."""
    return f"{prefix}invalid-input.json"


def publication_uri(prefix: str) -> str:
    """Return the URI at which the last stage's job of an attempt writes its `Publication`."""
    # Outside of every `stage_prefix`, so that a stage may have any name.
    return f"{prefix}publication.json"


def unpublished_uri(prefix: str) -> str:
    """Return the URI at which a job that publishes nothing writes the `ArrowReference` of its last stage."""
    return f"{prefix}unpublished.json"


def loads_uri(prefix: str) -> str:
    """Return the URI at which the last stage's job of an attempt writes its `Loads`."""
    return f"{prefix}loads.json"
