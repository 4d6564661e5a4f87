"""KMS keys of sources, by source. Settings, functions and jobs get them as `source=ARN,source=ARN`."""

from __future__ import annotations

from collections.abc import Mapping


def parse_source_keys(value: str) -> dict[str, str]:
    """Return the keys of `source=ARN,source=ARN` by source. Raises `ValueError` that names a malformed entry."""
    keys: dict[str, str] = {}
    for entry in filter(None, map(str.strip, value.split(","))):
        source, _, arn = entry.partition("=")
        if not (source and arn):
            raise ValueError(f"{entry!r} is not of the form source=ARN")
        if source in keys:
            raise ValueError(f"the source {source!r} has two keys")
        keys[source] = arn
    return keys


def format_source_keys(keys: Mapping[str, str]) -> str:
    """Return the string that `parse_source_keys` reads."""
    return ",".join(f"{source}={arn}" for source, arn in sorted(keys.items()))
