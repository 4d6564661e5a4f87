"""`slackwater lineage`: what a published version was made from, and who has read it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown, shown_in
from slackwater.cli.options import PipelineName, option, period_option
from slackwater.cli.output import print_note, print_text
from slackwater.cli.tree import Node, print_tree
from slackwater.errors import InputError
from slackwater.formatting import counted, timestamp

if TYPE_CHECKING:
    from slackwater.client.results import DayRead, Lineage, Reader, SourceRead, Verdict, VersionLineage

_BAD, _OLD, _MORE = "red", "yellow", "dim"


@command(
    "slackwater lineage daily_delays --date 2013-03-10",
    "slackwater lineage daily_delays --date 2013-03-10 --up --files",
    "slackwater lineage daily_delays --date 2013-03-10 --down --json",
    "slackwater lineage daily_delays --date 2013-03-10 --version 1",
)
def lineage(
    pipeline: PipelineName,
    *,
    date: Annotated[str, period_option("--date", text="The day, or the hour of an hourly pipeline.")],
    version: Annotated[
        int | None, option("--version", metavar="N", min=1, text="A version. Default: the published one.")
    ] = None,
    up: Annotated[bool, option("--up", text="Only what the version has read.")] = False,
    down: Annotated[bool, option("--down", text="Only who has read it.")] = False,
    files: Annotated[bool, option("--files", text="List each object, with the file that it comes from.")] = False,
    session: Session,
) -> Result:
    """Show what a published version was made from, and which published days have read it.

    Up: the events of each source by hour, the versions of other pipelines and what those have read, Iceberg tables, and
    what load steps have written. Down: the readers by the deployed definitions, the version that each has read, and
    whether that is the newest. The input manifests of the versions say all of this. Failed data is marked. JSON, also
    in a pipe, lists each object.
    """
    if up and down:
        raise InputError("--up, --down: give one of them; without them, both are shown")
    is_document = session.as_json or not sys.stdout.isatty()
    session.project.pipeline(pipeline)
    found = session.client.lineage(
        pipeline, date, version=version, up=not down, down=not up, objects=files or is_document
    )
    return Result(
        found.model_dump(mode="json"), None if is_document else lambda: _print(found, up=not down, down=not up)
    )


def _print(found: Lineage, *, up: bool, down: bool) -> None:
    if up:
        print_tree(_up_tree(found))
    if down:
        if up:
            print_text("")
        print_tree(_down_tree(found))
    if not found.is_complete:
        print_note(f"there are more than {len(found.up or found.down):,} versions: the others are left out", style=_OLD)


def _up_tree(found: Lineage) -> Node:
    by_key = {(each.pipeline, each.date, each.version): each for each in found.up}
    drawn = set[tuple[str, str, int]]()

    def of_version(each: VersionLineage, old: str, *, is_root: bool) -> Node:
        drawn.add((each.pipeline, each.date, each.version))
        at = f", published {timestamp(each.published_at)}" if each.published_at else ""
        node = Node(f"{_named(each.pipeline, each.date, each.version)}{old}: {counted(each.rows, 'row')}{at}")
        node.children = list(_verdicts(each.verdicts)) if is_root else []
        if not is_root and each.verdicts:
            node.style = _BAD
        if not each.is_known:
            node.children.append(Node("its input manifest is gone: what it has read is not known", _OLD))
        node.children += [_source(source, shows_hours=is_root) for source in each.sources]
        for read in each.days:
            key = read.pipeline, read.date, read.version
            old = "" if read.is_newest else f", version {read.newest} is newest"
            if key in by_key and key not in drawn:
                child = of_version(by_key[key], old, is_root=False)
            else:
                child = Node(f"{_named(*key)}{old}{' (see above)' if key in drawn else ''}")
            child.style = child.style or (_OLD if old else "")
            node.children.append(child)
        for table in each.tables:
            node.children.append(Node(f"{table.table}, snapshot {table.snapshot}: {counted(table.rows, 'row')}"))
        for load in each.loads:
            rows = "" if load.rows is None else f": {counted(load.rows, 'row')}"
            node.children.append(Node(f"{load.name} ({load.step}) has written {load.target}{rows}"))
        return node

    root = found.up[0]
    return of_version(root, "" if root.is_newest else ", replaced since", is_root=True)


def _source(source: SourceRead, *, shows_hours: bool) -> Node:
    of_files = f" from {counted(source.files, 'file')}" if source.files else ""
    failed = {verdict.period for verdict in source.verdicts}
    text = f"{source.name}: {counted(source.rows, 'event')} in {counted(source.objects, 'object')}{of_files}"
    node = Node(text, _BAD if failed else "")
    for hour in source.hours if shows_hours or source.inputs else ():
        of_files = f" from {counted(hour.files, 'file')}" if hour.files else ""
        is_failed = f"{hour.date}T{hour.hour}" in failed
        text = f"{hour.date} {hour.hour}:00 UTC: {counted(hour.rows, 'event')} in {counted(hour.objects, 'object')}"
        child = Node(f"{text}{of_files}{', failed' if is_failed else ''}", _BAD if is_failed else "")
        child.children = [
            Node(f"{item.uri}: {counted(item.rows, 'event')}{f' from {item.file}' if item.file else ''}", _MORE)
            for item in source.inputs
            if (item.date, item.hour) == (hour.date, hour.hour)
        ]
        node.children.append(child)
    return node


def _down_tree(found: Lineage) -> Node:
    readers: dict[tuple[str, str], list[Reader]] = {}
    for each in found.down:
        readers.setdefault((each.read.pipeline, each.read.date), []).append(each)
    drawn = set[tuple[str, str]]()

    def of_readers(pipeline: str, date: str) -> Iterator[Node]:
        drawn.add((pipeline, date))
        for each in readers.get((pipeline, date), ()):
            node = Node(f"{_named(each.pipeline, each.date, each.version)}: {_what_it_has_read(each.read)}")
            node.style = _BAD if each.verdicts else "" if each.read.is_newest else _OLD
            node.children = list(_verdicts(each.verdicts))
            key = each.pipeline, each.date
            if each.read.version is not None and key not in drawn:
                node.children += of_readers(*key)
            elif key in readers:
                node.text += " (its readers: see above)"
            yield node

    root = Node(f"read by: {_named(found.pipeline, found.date, found.version)}")
    root.children = list(of_readers(found.pipeline, found.date)) or [Node("no published version", _MORE)]
    return root


def _what_it_has_read(read: DayRead) -> str:
    if read.version is None:
        return f"published without {shown(read.pipeline)} {read.date}, or its input manifest is gone"
    what = f"has read version {read.version}"
    if not read.is_newest:
        return f"{what}, version {read.newest} is newest"
    # Another number with the same rows.
    return f"{what}, the newest" if read.version == read.newest else f"{what}, with the rows of the newest"


def _verdicts(verdicts: Iterable[Verdict]) -> Iterator[Node]:
    from slackwater.client.results import describe_verdicts

    return (Node(shown_in(line), _BAD) for line in describe_verdicts(verdicts))


def _named(pipeline: str, date: str, version: int) -> str:
    return f"{shown(pipeline)} {date}, version {version}"
