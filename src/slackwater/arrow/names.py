"""Quoting of column names in Spark SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return the name in backticks, so that a dot, a space or a backtick in it is part of the name.

    >>> quoted("net price")
    '`net price`'
    """
    # Spark writes a backtick inside of backticks as two.
    return "`" + name.replace("`", "``") + "`"
