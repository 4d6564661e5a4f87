"""`python -m tests.soak`: run the generated year, or show what a pull costs with millions of files in the cache."""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.soak.large_cache import SIZES, large_caches
from tests.soak.run import check_costs, soak
from tests.soak.year import Year


def main() -> None:
    faulthandler.enable()
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--days", type=int, default=365, help="simulated days (default: 365)")
    parser.add_argument("--seed", type=int, default=1, help="another seed generates another year (default: 1)")
    parser.add_argument(
        "--entries",
        type=int,
        help="only this part: the cost of each operation with up to this number of recorded files",
    )
    arguments = parser.parse_args()
    if arguments.entries:
        figures = large_caches(sorted({size for size in SIZES if size < arguments.entries} | {arguments.entries}))
    else:
        run = with_progress if sys.stderr.isatty() else soak
        figures = run(days=arguments.days, seed=arguments.seed) | {"recorded files": large_caches()}
    print(json.dumps(figures, indent=2))
    if len(figures.get("months", ())) > 2:
        check_costs(figures)


def with_progress(*, days: int, seed: int) -> dict[str, Any]:
    columns = [BarColumn(), MofNCompleteColumn(), TextColumn("days, {task.description}"), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=days)

        def show(day: int, year: Year) -> None:
            text = f"{year.pulls:,} pulls, {year.attempts:,} fetches, {year.account.checks} accounts"
            progress.update(task, completed=day, description=text)

        return soak(days=days, seed=seed, on_day=show)


if __name__ == "__main__":
    main()
