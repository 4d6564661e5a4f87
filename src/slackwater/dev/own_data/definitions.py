"""The YAML of a pipeline that counts the rows of a source, and of its test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from slackwater.dev.editor_schemas import schema_comment
from slackwater.receiver.inference.definition_yaml import flow

_MAX_NAME = 63
# Words of queries that are no names without quotes.
_KEYWORDS = frozenset(
    (
        *("all", "and", "anti", "any", "as", "between", "both", "by", "case", "cast", "cross", "date", "default"),
        *("distinct", "else", "end", "exists", "false", "fetch", "for", "from", "full", "group", "having", "hour"),
        *("in", "inner", "intersect", "interval", "into", "is", "join", "lateral", "left", "like", "limit", "map"),
        *("minus", "natural", "not", "null", "on", "only", "or", "order", "outer", "right", "rows", "select"),
        *("semi", "set", "some", "struct", "table", "then", "timestamp", "to", "true", "union", "unique", "user"),
        *("using", "values", "when", "where", "window", "with"),
    )
)
# What a row without a value of the column is counted as: a key of the table has no nulls.
_NO_VALUE = "unknown"


@dataclass(frozen=True, kw_only=True)
class Counting:
    """A pipeline that counts the rows of a source by a column, or else by local hour."""

    source: str
    timestamp: str
    """The column with the timestamp."""
    column: str | None
    timezone: str

    @property
    def pipeline(self) -> str:
        """The name of the pipeline."""
        return f"daily_{self.source}"[:_MAX_NAME]

    @property
    def by(self) -> str:
        """The column of the result by which it counts."""
        return self.column or "hour"

    @property
    def step(self) -> str:
        """The name of the step, which no source has."""
        return f"{self.source[:30]}_by_{self.by[:28]}"

    @property
    def count(self) -> str:
        """The column with the counts."""
        return "events" if self.by != "events" else "event_count"

    def definition(self) -> str:
        """Return the YAML of the pipeline."""
        expression = self._expression()
        by = _quoted(self.by) if self.column else "hour"
        # The names in the query are those of a definition: letters, digits and underscores.
        return f"""\
{schema_comment("pipeline")}
# Counts the rows of each day by {self.by}. Replace the query by your own.
pipeline: {self.pipeline}
# A day is the time between two midnights of this timezone.
timezone: {flow(self.timezone)}
sources: [{self.source}]
steps:
  {self.step}:
    step: sql
    depends_on: [{self.source}]
    with:
      query: |
        SELECT {expression} AS {by}, count(*) AS {self.count}
        FROM {_quoted(self.source)}
        GROUP BY {expression}
publish:
  step: {self.step}
  key: [date, {self.by}]
  metrics: {{{self.count}: sum}}               # the total of a day, compared when late data has changed it
"""  # noqa: S608 - see above

    def test(self, day: date, rows: tuple[Mapping[str, Any], ...], counts: Mapping[Any, int]) -> str:
        """Return the YAML of a test: rows of a day, and their counts by value of the column or by hour."""
        merged: dict[Any, int] = {}
        for value, count in counts.items():
            key = _NO_VALUE if value is None else value
            merged[key] = merged.get(key, 0) + count
        inputs = [f"    - {flow(dict(row))}" for row in rows]
        expected = [f"    - {flow({self.by: value, self.count: count})}" for value, count in merged.items()]
        return "\n".join(
            (
                schema_comment("test"),
                f"pipeline: {self.pipeline}",
                f"date: {day}",
                "inputs:",
                f"  {self.source}:",
                *inputs,
                "expect:",
                f"  {self.step}:",
                *expected,
                "",
            )
        )

    def _expression(self) -> str:
        if self.column:
            return f"coalesce({_quoted(self.column)}, '{_NO_VALUE}')"
        timestamp = _quoted(self.timestamp)
        if self.timezone == "UTC":
            return f"hour({timestamp})"
        return f"hour(from_utc_timestamp({timestamp}, '{self.timezone}'))"


def _quoted(name: str) -> str:
    return f"`{name}`" if name in _KEYWORDS else name
