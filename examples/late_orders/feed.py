"""Generates the files of the example's partner: a shop whose files change, shrink, disappear and arrive late.

The same arguments give the same bytes. Each state of the partner's folder is a folder of its own, so that every number
of the scenario can be computed again from the files of that time.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from pathlib import Path
from random import Random

HOURS = (6, 12, 18)
"""Each file has the orders of two hours, from one of these hours on, UTC."""
ORDERS = 30
"""Orders in each file of the first state."""
_SECONDS_PER_FILE = 2 * 3600
_COLUMNS = ("order_id", "ordered_at", "product", "quantity", "price_cents", "status")
_PRICES = {"chair": 7_900, "desk": 24_900, "lamp": 3_450, "shelf": 11_990}
_CANCELLED = 0.15


@dataclass
class Feed:
    """The partner's files. `state` is the folder with the current ones."""

    folder: Path
    state: Path

    @classmethod
    def make(cls, folder: Path, name: str, days: Sequence[date]) -> Feed:
        """Write the files of UTC days into the state `name`, a new folder in `folder`."""
        feed = cls(folder, folder / name)
        feed.state.mkdir(parents=True)
        for day in days:
            for hour in HOURS:
                feed.write(day, hour)
        return feed

    def begin(self, name: str) -> None:
        """Begin the state `name`, with the files of the current one. Later changes do not change earlier states."""
        # With the times of modification: the pull would fetch a file with another one again.
        self.state = Path(shutil.copytree(self.state, self.folder / name))

    def write(self, day: date, hour: int, *, first: int = 0, count: int = ORDERS, name: str = "") -> str:
        """Write a file with `count` of the orders from `hour` on, beginning with number `first`; return its name.

        `name` replaces the hour in the name of the file.
        """
        file = f"orders-{day.isoformat()}-{name or f'{hour:02d}'}.csv"
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(islice(orders(day, hour), first, first + count))
        (self.state / file).write_text(text.getvalue(), encoding="utf-8", newline="")
        return file

    def remove(self, day: date, hour: int) -> str:
        """Remove a file, and return its name."""
        file = f"orders-{day.isoformat()}-{hour:02d}.csv"
        (self.state / file).unlink()
        return file


def orders(day: date, hour: int) -> Iterator[tuple[str, str, str, int, int, str]]:
    """Yield the orders of the two hours from `hour` on, without end; their times are in no order."""
    random = Random(f"{day} {hour}")  # noqa: S311 - the orders must be the same in each run
    start = datetime(day.year, day.month, day.day, hour)  # noqa: DTZ001 - the file has UTC times, ending in Z
    number = 0
    while True:
        ordered_at = start + timedelta(seconds=int(random.random() * _SECONDS_PER_FILE))
        product = sorted(_PRICES)[int(random.random() * len(_PRICES))]
        quantity = 1 + int(random.random() * 5)
        status = "cancelled" if random.random() < _CANCELLED else "paid"
        order_id = f"{day:%m%d}-{hour:02d}-{number:03d}"
        yield order_id, f"{ordered_at.isoformat()}Z", product, quantity, _PRICES[product], status
        number += 1
