"""`slackwater source`: check the definitions of sources, and infer one from a sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from slackwater.cli.command import Result, Session, command, command_group, epilog
from slackwater.cli.options import argument, option
from slackwater.cli.output import print_json, print_note, print_table, print_text
from slackwater.formatting import counted

group = command_group("source", "Definitions of sources.")


@command("slackwater source validate", "slackwater source validate sources/flights.yaml", group=group)
def validate(
    file: Annotated[
        Path | None, argument("FILE", "The YAML file of one source. Default: all sources of the project.")
    ] = None,
    *,
    session: Session,
) -> Result:
    """Check the definitions of sources, and print their columns."""
    from slackwater.project.project import load_source

    sources = [load_source(file)] if file else list(session.project.sources.values())
    documents = [source.model_dump(by_alias=True) | {"columns": source.columns} for source in sources]

    def view() -> None:
        for source in sources:
            print_text(f"{source.source}: valid, {counted(len(source.columns), 'column')}", style="green")
            rows = []
            for name, data_type in source.columns.items():
                origin = source.partner_name(name) if name in source.fields else "derived"
                required = ", required" if name in source.required_fields else ""
                rows.append((name, data_type, f"{origin}{required}"))
            print_table(("column", "type", "from"), rows)

    return Result({"sources": documents}, view)


@command("slackwater source rebuild-table orders", name="rebuild-table", group=group, writes=True)
def rebuild_table(
    source: Annotated[str, argument("SOURCE", "A source of the project.")], *, session: Session
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
        argument(
            "FILE-OR-URL", "A CSV, NDJSON, JSON, Parquet or Excel file, compressed or not; or its http or https URL."
        ),
    ],
    name: Annotated[
        str | None, option(metavar="NAME", text="The name of the source. Default: that of --output or of the file.")
    ] = None,
    output: Annotated[
        Path | None,
        option(metavar="FILE", text="Write the definition to this new file, NAME.yaml, and do not print it."),
    ] = None,
) -> Result:
    """Write the definition of a source from a sample file.

    At most 100,000 rows and 16 MiB are read. Comments state the evidence. What the values do not decide, such as day
    or month first, or the timezone, is marked DECIDE, and `source validate` refuses what the receiver needs.

    Of a URL, private addresses are refused: SLACKWATER_SET=outbound_allow=HOST:PORT allows one.
    """
    from slackwater.dev.infer import infer_source

    inferred = infer_source(sample, name=name, output=output)
    document = {**vars(inferred), "output": output and str(output)}

    def view() -> None:
        if output:
            rows = f"{'' if inferred.is_complete else 'the first '}{counted(inferred.rows, 'row')}"
            print_text(f"{output}: {counted(len(inferred.fields), 'field')} from {rows}", style="green")
        else:
            print_text(inferred.definition.rstrip("\n"))
        if inferred.rejected:
            print_note(f"the receiver rejects {counted(inferred.rejected, 'row')} of the sample", style="yellow")
        for field, problem in inferred.undecided.items():
            print_note(f"decide {field}: {problem}", style="yellow")

    return Result(document, view)
