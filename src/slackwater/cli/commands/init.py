"""`slackwater init`: write a small project that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from slackwater.cli.command import Result, command
from slackwater.cli.options import argument
from slackwater.cli.output import print_text


@command("slackwater init my_project", "slackwater init my_project --json")
def init(
    folder: Annotated[Path, argument("DIR", "A new or an empty folder; `.` is this one.")],
) -> Result:
    """Write a small project that runs: a source, a pipeline, data, and a README with the next commands."""
    from slackwater.dev.new_project import write_project

    written = write_project(folder)

    def view() -> None:
        print_text(f"wrote {len(written)} files to {folder}", style="green")
        for name in written:
            print_text(f"  {name}")
        print_text(f"Next, in {folder}: slackwater local up (README.md lists the commands that follow)")

    return Result({"project": str(folder.resolve()), "files": written}, view)
