"""`slackwater source`: check the definitions of sources, and infer one from a sample."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from slackwater.cli.command import Result, Session, command, command_group, epilog
from slackwater.cli.output import print_json, print_note, print_table, print_text
from slackwater.errors import InputError
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.receiver.inference.infer import InferredDefinition
    from slackwater.sources.definition import Source

group = command_group("source", "Definitions of sources.")


@command("slackwater source validate", "slackwater source validate sources/flights.yaml", group=group)
def validate(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The YAML file of one source. Default: all sources of the project."),
    ] = None,
    *,
    session: Session,
) -> Result:
    """Check the definitions of sources, and print their columns."""
    from slackwater.project.project import load_source

    sources = [load_source(file)] if file else list(session.project.sources.values())
    documents = [source.model_dump(by_alias=True) | {"columns": source.columns} for source in sources]
    return Result({"sources": documents}, partial(_print_columns, sources))


def _print_columns(sources: Sequence[Source]) -> None:
    for source in sources:
        print_text(f"{source.source}: valid, {counted(len(source.columns), 'column')}", style="green")
        rows = []
        for name, data_type in source.columns.items():
            origin = source.partner_name(name) if name in source.fields else "derived"
            required = ", required" if name in source.required_fields else ""
            rows.append((name, data_type, f"{origin}{required}"))
        print_table(("column", "type", "from"), rows)


@command("slackwater source rebuild-table orders", name="rebuild-table", group=group)
def rebuild_table(
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False)], *, session: Session
) -> Result:
    """Drop the Iceberg table of a source's raw events, and create it again.

    The table follows the stored objects by itself; this repairs one that was damaged, or that lacks changes of days
    before the window of the daily check. No event is read or changed. Until the command ends, queries of the table fail
    or lack events.
    """
    change = session.client.rebuild_table(source)
    document = {"source": source, "objects": change.added}
    return Result(document, lambda: print_text(f"{source}: the table has {counted(change.added, 'object')}"))


@group.command(epilog=epilog("slackwater source schema > source.schema.json"))
def schema() -> None:
    """Print the JSON Schema of source definitions.

    Editors check YAML files with it.
    """
    from slackwater.sources.definition import source_schema

    print_json(source_schema())


@command(
    "slackwater source infer orders-2013-03-08.csv",
    "slackwater source infer orders.csv.gz --output sources/orders.yaml",
    "slackwater source infer https://partner.example/out/orders-2013-03-08.parquet --name orders --json",
    group=group,
)
def infer(
    sample: Annotated[
        str,
        typer.Argument(
            metavar="FILE-OR-URL",
            help="A CSV, NDJSON, JSON, Parquet or Excel file, compressed or not; or its http or https URL.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The name of the source. Default: that of --output or of the file.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the definition to this new file, NAME.yaml, and do not print it.",
            show_default=False,
        ),
    ] = None,
) -> Result:
    """Write the definition of a source from a sample file.

    At most 100,000 rows and 16 MiB are read. Comments state the evidence. What the values do not decide, such as day
    or month first, or the timezone, is marked DECIDE, and `source validate` refuses what the receiver needs.

    Of a URL, private addresses are refused: SLACKWATER_SET=outbound_allow=HOST:PORT allows one.
    """
    from slackwater.receiver.inference.infer import infer_definition

    name = _source_name(name, output)
    with _open_sample(sample) as file:
        inferred = infer_definition(file.path, name=file.name, source=name, url=file.url, is_whole=file.is_whole)
    if output:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            with output.open("x", encoding="utf-8") as stream:
                stream.write(inferred.definition)
        except OSError as error:
            raise InputError(f"--output: {output}: {error.strerror}") from error
    document = {**vars(inferred), "output": output and str(output)}
    return Result(document, partial(_print_inferred, inferred, output))


class _SampleFile(NamedTuple):
    path: Path
    name: str
    url: str | None
    """Without its query, which may be secret."""
    is_whole: bool
    """Whether the file is complete, not only the beginning of a download."""


@contextmanager
def _open_sample(sample: str) -> Iterator[_SampleFile]:
    """Yield a local file, or the beginning of the file at a URL in a temporary file."""
    if not re.match(r"[a-z0-9]+://", sample):
        path = Path(sample)
        if not path.is_file():
            raise InputError(f"{sample}: no such file")
        yield _SampleFile(path, path.name, None, is_whole=True)
        return
    from tempfile import TemporaryDirectory
    from urllib.parse import unquote

    from slackwater.deploy.deploy import parse_settings
    from slackwater.outbound.guard import Outbound
    from slackwater.receiver.connectors.http_session import download_start, without_query
    from slackwater.receiver.inference.read_sample import MAX_BYTES

    if not sample.startswith(("http://", "https://")):
        raise InputError(f"{sample}: only http and https URLs are read: download the file, and name it")
    allow = parse_settings(os.environ.get("SLACKWATER_SET", "").split()).get("outbound_allow", "")
    outbound, url = Outbound.of(filter(None, allow.split(","))), without_query(sample)
    with TemporaryDirectory(prefix="slackwater-sample-") as folder:
        path = Path(folder, "sample")
        with path.open("w+b") as file:
            is_whole = download_start(sample, file, outbound=outbound, max_bytes=MAX_BYTES)
        yield _SampleFile(path, unquote(url.rpartition("/")[2]) or "sample", url, is_whole)


def _source_name(name: str | None, output: Path | None) -> str | None:
    """Return the name of the source; None if it comes from the sample. Raises `InputError`."""
    from pydantic import TypeAdapter, ValidationError

    from slackwater.model import Name

    if output is not None:
        if output.exists():
            raise InputError(f"--output: {output} exists: remove it, or name another file")
        if output.suffix != ".yaml" or (name and name != output.stem):
            raise InputError(f"--output: {output}: the file of a source has its name: {name or output.stem}.yaml")
        name = output.stem
    try:
        return TypeAdapter(Name | None).validate_python(name)
    except ValidationError as error:
        option = "--output" if output else "--name"
        raise InputError(f"{option}: {name!r} is no name of a source: use a letter, then a-z, 0-9 and _") from error


def _print_inferred(inferred: InferredDefinition, output: Path | None) -> None:
    if output:
        rows = f"{'' if inferred.is_complete else 'the first '}{counted(inferred.rows, 'row')}"
        print_text(f"{output}: {counted(len(inferred.fields), 'field')} from {rows}", style="green")
    else:
        print_text(inferred.definition.rstrip("\n"))
    if inferred.rejected:
        print_note(f"the receiver rejects {counted(inferred.rejected, 'row')} of the sample", style="yellow")
    for field, problem in inferred.undecided.items():
        print_note(f"decide {field}: {problem}", style="yellow")
