"""The rejected rows of a file that is being parsed, on local disk, and whether the file is rejected as a whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.parsing.rejections import Rejection, RejectionRule
from slackwater.receiver.writing.rejected_hours import RejectedBins, count_bins
from slackwater.receiver.writing.rejects import to_jsonl

WHOLE_FILE_ROWS = 100_000
"""A file is rejected as a whole if so many rows at its start break the same rule; fewer if it has no more rows."""
EXAMPLES = 100
"""Rows that are stored of a file that is rejected as a whole."""
# These say nothing about the file: one that is sorted by time begins with its oldest rows.
_RULES_OF_ROWS = (RejectionRule.TOO_OLD, RejectionRule.IN_THE_FUTURE)


class RejectedRows:
    """Writes the rejected rows of a file as JSON lines. A context manager, which closes the file at `path`."""

    def __init__(self, path: Path, *, batch_id: str, origin: str) -> None:
        self.path = path
        self.count = 0
        """Number of rejected rows."""
        self.bins: RejectedBins = Counter()
        """Rejected rows by the time in them, as `count_bins` counts them."""
        # Rows at the start of the file that all break the same rule; at most `WHOLE_FILE_ROWS` are counted.
        self._leading = 0
        self._batch_id, self._origin = batch_id, origin
        self._file = path.open("wb")
        self.first: Rejection | None = None
        """The rejection of the first rejected row."""
        # One example stands for all later rows. It is kept with its position, because only the end of the file shows
        # for how many; the other examples may be large, and are on disk only.
        self._last_example: pa.Table | None = None
        self._last_position = 0
        # By rule: how many rows were written or counted, and the first one that was only counted.
        self._outside = dict.fromkeys(_RULES_OF_ROWS, 0)
        self._counted: dict[RejectionRule, pa.Table] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, rejections: pa.Table) -> None:
        """Write the rejected rows of the next block, which are as in `CheckedEvents`.

        Of the rows that are too old, or in the future, at most `WHOLE_FILE_ROWS` each are written: the rows of a long
        history would take many times the file's own size.
        """
        rejected = rejections.num_rows
        if not rejected:
            return
        if self.first is None:
            self.first = Rejection(rejections["rule"][0].as_py(), rejections["reason"][0].as_py())
        self._count_leading(rejections, self.first)
        written = self._without_excess(rejections)
        if self.count < EXAMPLES <= self.count + rejected:
            last = EXAMPLES - self.count - 1
            self._write(written.slice(0, last))
            self._last_example, self._last_position = written.slice(last, 1), self._file.tell()
            self._write(written.slice(last))
        else:
            self._write(written)
        self.count += rejected
        self.bins += count_bins(rejections)

    @property
    def is_limit_reached(self) -> bool:
        """Whether the file is rejected as a whole, so that its other rows need not be read."""
        return self._leading == WHOLE_FILE_ROWS

    def finish(self, rows: int) -> str | None:
        """Return why the file is rejected as a whole, and keep only examples; None if it is not.

        `rows` is the number of rows of the file, rejected or not.
        """
        if self.first is None or self._leading < min(rows, WHOLE_FILE_ROWS):
            for rule, example in self._counted.items():
                self._write(example, rows=self._outside[rule] - WHOLE_FILE_ROWS)
            return None
        if self._last_example is not None:
            self._file.seek(self._last_position)
            self._file.truncate()
            self._write(self._last_example, rows=rows - EXAMPLES + 1)
        self.bins[None, None] += rows - self.count  # the rows that were not read
        self.count = rows
        if rows > self._leading:
            scope = f"the first {self._leading:,} of {rows:,} rows break"
        else:
            scope = f"all {rows:,} rows break" if rows > 1 else "its only row breaks"
        return f"rejected as a whole: {scope} the rule {self.first.rule}; the first row: {self.first.reason}"

    def _without_excess(self, rejections: pa.Table) -> pa.Table:
        """Return the rows of the block that are written; the others are counted."""
        for rule in _RULES_OF_ROWS:
            is_outside = pc.equal(rejections["rule"], rule)
            before, outside = self._outside[rule], pc.sum(is_outside).as_py() or 0
            self._outside[rule] += outside
            if self._outside[rule] > WHOLE_FILE_ROWS and outside:
                excess = pc.indices_nonzero(is_outside)[max(WHOLE_FILE_ROWS - before, 0) :]
                self._counted.setdefault(rule, rejections.slice(excess[0].as_py(), 1))
                counted = pc.is_in(pa.array(range(rejections.num_rows), pa.uint64()), value_set=excess)
                rejections = rejections.filter(pc.invert(counted))
        return rejections

    def _count_leading(self, rejections: pa.Table, first: Rejection) -> None:
        """Count the rows of the block that continue those at the start of the file."""
        if first.rule in _RULES_OF_ROWS or rejections["index"][0].as_py() != self._leading:
            return
        next_indices = pa.array(range(self._leading, self._leading + rejections.num_rows))
        is_next = pc.and_(pc.equal(rejections["index"], next_indices), pc.equal(rejections["rule"], first.rule))
        end = pc.index(is_next, False).as_py()
        self._leading += rejections.num_rows if end < 0 else end
        self._leading = min(self._leading, WHOLE_FILE_ROWS)

    def _write(self, rejections: pa.Table, *, rows: int | None = None) -> None:
        self._file.write(to_jsonl(rejections, batch_id=self._batch_id, origin=self._origin, rows=rows))
