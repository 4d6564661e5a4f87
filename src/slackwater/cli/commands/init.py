"""`slackwater init`: write a small project that runs, or one for a user's own data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, command
from slackwater.cli.options import argument, option
from slackwater.cli.output import print_note, print_text

if TYPE_CHECKING:
    from slackwater.dev.own_data.write_project import OwnProject


@command(
    "slackwater init my_project",
    "slackwater init my_project --from orders.csv",
    "slackwater init my_project --from exports/ --from customers.ndjson",
    "slackwater init my_project --from https://partner.example/out/",
)
def init(
    folder: Annotated[Path, argument("DIR", "A new or an empty folder; `.` is this one.")],
    *,
    samples: Annotated[
        list[str] | None,
        option(
            "--from",
            metavar="FILE-OR-URL",
            text="Begin with your own data: a file, a folder, or an http or https URL, of a file or, with a slash at "
            "the end, of a listing. Repeat it for several sources.",
        ),
    ] = None,
) -> Result:
    """Write a small project that runs: a source, a pipeline, a test, data, and a README with the next commands.

    With --from, write a project for your own data instead: the definition of a source, which `slackwater source infer`
    infers from the latest file, a pipeline that counts its rows, and a test with some of them. What the data does not
    decide is listed. Files whose names differ in their dates only are one source. Files that say how many events were
    sent become `counts` of a source; a file that cannot be read is left out, and named.
    """
    if samples:
        from slackwater.dev.own_data.write_project import write_own_project

        project = write_own_project(folder, samples)
        document = {"project": str(folder.resolve()), **vars(project), "decisions": list(map(vars, project.decisions))}
        document["unread"] = list(map(vars, project.unread))
        return Result(document, lambda: _print_own(project, folder))
    from slackwater.dev.new_project import write_project

    written = write_project(folder)

    def view() -> None:
        print_text(f"wrote {len(written)} files to {folder}", style="green")
        for name in written:
            print_text(f"  {name}")
        print_text(f"Next, in {folder}: slackwater local up (README.md lists the commands that follow)")

    return Result({"project": str(folder.resolve()), "files": written}, view)


def _print_own(project: OwnProject, folder: Path) -> None:
    print_text(f"wrote {len(project.files)} files to {folder}", style="green")
    # Sources first: what follows from them depends on their decisions.
    folders = {"sources": 0, "pipelines": 1, "tests": 2}
    for name in sorted(project.files, key=lambda name: folders.get(name.partition("/")[0], len(folders))):
        print_text(f"  {name}")
        for decision in project.decisions:
            if decision.file == name:
                verb = "DECIDE" if decision.is_required else "check"
                style = "yellow" if decision.is_required else ""
                print_text(f"    {verb} {decision.field}: {decision.problem}", style=style)
    for unread in project.unread:
        print_note(f"left out, because it could not be read: {unread.reason}", style="yellow")
    after = ", after the decisions" if any(decision.is_required for decision in project.decisions) else ""
    print_text(f"Next, in {folder}{after}:")
    for line in project.next_commands:
        print_text(f"  {line}")
