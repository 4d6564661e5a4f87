"""`slackwater step`: what steps there are, and running one on files of this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, command, command_group
from slackwater.cli.options import argument, option
from slackwater.cli.output import print_note, print_table, print_text, value_lines
from slackwater.errors import InputError
from slackwater.formatting import counted

if TYPE_CHECKING:
    import pyarrow as pa


group = command_group("step", "Steps of pipelines: list them, and run one.")

_INPUT = re.compile(r"([a-z][a-z0-9_]*)=(.+)", re.DOTALL)
StepName = Annotated[str, argument("NAME", "The name of a step.")]


@command("slackwater step list", "slackwater step list --json", name="list", group=group)
def list_steps() -> Result:
    """List all steps, also those of installed packages."""
    from slackwater.steps.documentation import describe
    from slackwater.steps.registry import registry

    described = sorted(map(describe, registry()), key=lambda step: ("extract", "transform", "load").index(step.kind))
    rows = [{"name": step.name, "kind": step.kind, "summary": step.summary} for step in described]
    table = partial(print_table, ("step", "kind", "summary"), [tuple(row.values()) for row in rows])
    return Result({"steps": rows}, table)


@command("slackwater step show clean_nan", "slackwater step show clean_nan --json", group=group)
def show(name: StepName) -> Result:
    """Show what a step does, its inputs and its parameters.

    In JSON, `schema` is the JSON Schema of the parameters.
    """
    from slackwater.steps.documentation import describe

    step = describe(name)

    def view() -> None:
        print_text(f"{step.name} ({step.kind}): {step.summary}", style="bold")
        for text in (step.details, f"Inputs: {step.inputs}"):
            if text:
                print_text(f"\n{text}")
        groups = [("Parameters", step.parameters), *((group.name, group.fields) for group in step.groups)]
        for title, fields in groups:
            print_text("")
            rows = [tuple(asdict(field).values()) for field in fields]
            print_table(("name", "type", "default", "description"), rows, title=title)

    return Result(asdict(step), view)


@command(
    "slackwater step run clean_nan --input in.parquet --with strategy=median --output out.parquet",
    "slackwater step run clean_nan --input in.csv --with 'columns={age: mean, city: {constant: unknown}}'",
    "slackwater step run join --input left=a.parquet --input right=b.parquet --with keys=[id] --with how=left",
    "slackwater step run read_csv --with path=in.csv --with 'fields={id: int64, at: timestamp}' --json",
    group=group,
)
def run(
    name: StepName,
    inputs: Annotated[
        list[str] | None,
        option(
            "--input",
            metavar="[INPUT=]FILE",
            text="A file with the rows of an input: .parquet, .csv or .ndjson. A step with several inputs needs the "
            "name of each: left=a.parquet.",
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        option(
            "--with",
            metavar="PARAMETER=VALUE",
            text="A parameter, its value in YAML, as a pipeline has it under `with`.",
        ),
    ] = None,
    output: Annotated[
        Path | None, option(metavar="FILE", text="Write the rows to this file: .parquet or .csv.")
    ] = None,
) -> Result:
    """Run one step on files of this machine, without a cloud.

    Without --output, the rows are printed. What the step did is printed to standard error.

    Steps that read or write files do so below the current folder.
    """
    if output and output.suffix not in {".parquet", ".csv"}:
        raise InputError(f"--output: {output} is neither a .parquet nor a .csv file")
    from slackwater.dev.context import run_one_step
    from slackwater.steps.registry import registry
    from slackwater.steps.step import Load

    is_load = isinstance(registry().get(name), Load)
    if is_load and output:
        raise InputError(f"--output: {name} itself writes the rows: remove the option")
    tables, values = _read_inputs(inputs or []), _read_parameters(parameters or [])
    table, record = run_one_step(name, tables, values)
    if output:
        _write(table, output)
    shown = {}
    if not (is_load or output):
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        shown = {"columns": table.column_names, "rows": rows}

    def view() -> None:
        if shown:
            print_table(shown["columns"], shown["rows"])
        rows_in = [
            f"{_rows(rows)} in{f' ({name})' if len(record.rows_in) > 1 else ''}"
            for name, rows in record.rows_in.items()
        ]
        print_note(
            f"{record.step}: {', '.join([*rows_in, f'{_rows(record.rows_out)} out'])}, {record.seconds or 0:.1f} s"
        )
        for line in value_lines(record.effect):
            print_note(line)

    return Result({**shown, "record": record.model_dump(mode="json")}, view)


def _read_inputs(inputs: Sequence[str]) -> pa.Table | dict[str, pa.Table] | None:
    """Return the rows of the files: of one without a name, or of all by name."""
    from slackwater.steps.io.table_files import read_table_file

    named = [match.groups() if (match := _INPUT.fullmatch(value)) else ("", value) for value in inputs]
    names = [name for name, _ in named]
    if len(set(names)) < len(names) or ("" in names and len(names) > 1):
        raise InputError("--input: name each of several inputs, such as --input left=a.parquet --input right=b.parquet")
    tables = {name: read_table_file(Path(path)) for name, path in named}
    return tables.get("") if names in ([], [""]) else tables


def _write(table: pa.Table, path: Path) -> None:
    """Write rows to a file. Raises `InputError` for a column that CSV lacks, and for a file that cannot be written."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        (parquet.write_table if path.suffix == ".parquet" else csv.write_csv)(table, path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"--output: {path}: {error}") from error


def _read_parameters(values: Sequence[str]) -> dict[str, Any]:
    """Return the parameters by name. Raises `InputError` for one without `=` or that is no YAML."""
    import yaml

    parameters = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or name in parameters:
            fault = f"{name} is given twice" if equals else f"{value!r} is not a parameter such as strategy=median"
            raise InputError(f"--with: {fault}")
        try:
            parameters[name] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(f"--with: {name}: not readable as YAML: {' '.join(str(error).split())}") from error
    return parameters


def _rows(rows: int | None) -> str:
    return "unknown rows" if rows is None else counted(rows, "row")
