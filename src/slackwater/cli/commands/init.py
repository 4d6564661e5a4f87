"""`slackwater init`: write a small project that runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.command import Result, command
from slackwater.cli.output import print_text
from slackwater.errors import InputError
from slackwater.project.installation import deployed_files


@command("slackwater init my_project", "slackwater init my_project --json")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new or an empty folder; `.` is this one.", show_default=False)
    ],
) -> Result:
    """Write a small project that runs: a source, a pipeline, data, and a README with the next commands."""
    written = write_project(folder)

    def view() -> None:
        print_text(f"wrote {len(written)} files to {folder}", style="green")
        for name in written:
            print_text(f"  {name}")
        print_text(f"Next, in {folder}: slackwater local up (README.md lists the commands that follow)")

    return Result({"project": str(folder.resolve()), "files": written}, view)


def write_project(folder: Path) -> list[str]:
    """Write the files of the sample project; return their paths in `folder`, sorted.

    Raises `InputError` if the folder is not empty, or cannot be written.
    """
    from slackwater.sources.definition import source_schema
    from slackwater.validation.pipeline_schema import pipeline_schema

    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty: name a new or an empty folder, such as {folder / 'my_project'}")
        shutil.copytree(deployed_files() / "examples" / "orders", folder, dirs_exist_ok=True)
        # With the dot, it would apply to the sample project itself.
        (folder / "gitignore").rename(folder / ".gitignore")
        for name, schema in (("source", source_schema()), ("pipeline", pipeline_schema())):
            (folder / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{folder} cannot be written ({reason}): name a folder that you may create") from error
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
