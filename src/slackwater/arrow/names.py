"""Column names as Spark takes them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a name in backticks, so that a dot, a blank or a backtick in it stays part of it."""
    return "`" + name.replace("`", "``") + "`"
