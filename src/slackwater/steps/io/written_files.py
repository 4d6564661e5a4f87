"""Write a frame below the project's files: as one object, or as a folder of parts.

One object is written by one PUT, which replaces an earlier one at once. Nothing replaces what a later attempt of the
same day has written. A folder is replaced in this order: the object
`_SUCCESS` is deleted, the new parts are written, the other parts are deleted, `_SUCCESS` is written with the names of
the new parts. So whoever reads a folder with `_SUCCESS`, or exactly the parts that it names, never mixes two calls.
Extract steps refuse a folder whose parts are not those that `_SUCCESS` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa

from slackwater.errors import DefinitionError, InputError
from slackwater.runs.record import Run
from slackwater.steps.files import INPUT, OutputPath, ProjectFiles, check_output, missing_period
from slackwater.steps.io.attempts import put_object
from slackwater.steps.io.file_writers import FileWriter
from slackwater.steps.io.folder_parts import part_name, replace_parts
from slackwater.steps.io.frames import map_batches, nullable_schema
from slackwater.steps.io.targets import expect_own_targets
from slackwater.steps.io.typed_files import files_of
from slackwater.steps.step import Effect, Load, Parameters, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Bytes of an object. It is in memory while it is written, together with its rows.
MAX_OBJECT_BYTES = 128 * 2**20
_COLUMNS = "uri string not null, rows long not null, bytes long not null"


class WrittenFiles(Parameters):
    """Parameters of steps that write files."""

    path: OutputPath
    """Path below the project's files: of the file, or of the folder with `parts`. `{date}` is the day of the run;
    without it, each day's run replaces the file. The path of an hourly pipeline needs `{date}`, the date in UTC, and
    `{hour}`, such as 05. `{input}` is the name of the input, and needed for several ones."""
    parts: bool = False
    """Whether to write a folder of files, each of at most about 128 MB, in parallel. Otherwise all rows are one file,
    and more than 128 MB are an error."""


class _Written(NamedTuple):
    uri: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class OutputFormat:
    """A format of written files."""

    extension: str
    open: Callable[[pa.Schema], FileWriter]
    is_flat: bool = False
    """Whether the format has neither nested columns nor binary data."""
    prepare: Callable[[DataFrame], DataFrame] = lambda frame: frame
    """Return the rows as the writer needs them."""


def file_writer(name: str, model: type[WrittenFiles], file_format: OutputFormat) -> Load:
    """Return the step `name`, which writes files in a format."""
    return Load(
        name=name,
        parameters=model,
        many_inputs=True,
        check=_check_inputs,
        check_period=_check_period,
        of_input=_of_input,
        write=partial(_write_files, file_format=file_format),
    )


def _of_input(parameters: WrittenFiles, name: str) -> WrittenFiles:
    return parameters.model_copy(update={"path": parameters.path.replace(INPUT, name)})


def _check_inputs(inputs: Sequence[str], parameters: WrittenFiles) -> None:
    """Raise `DefinitionError` unless each input has a path of its own that is valid."""
    expect_own_targets(inputs, parameters.path, field="path", example=f"exports/{INPUT}/{{date}}.csv")
    for name in inputs:
        try:
            check_output(_of_input(parameters, name).path)
        except ValueError as error:
            raise DefinitionError(f"path: {error}") from error


def _check_period(parameters: WrittenFiles, period: Literal["day", "hour"]) -> None:
    """Raise `DefinitionError` if two hours would write the same path."""
    if problem := missing_period(parameters.path, hourly=period == "hour"):
        raise DefinitionError(f"path: {problem}")


def _write_files(frame: DataFrame, parameters: WrittenFiles, context: StepContext, file_format: OutputFormat) -> Effect:
    """Write the frame, replace what an earlier call has written to the path, and return rows, bytes and files.

    Raises `Superseded` if a later attempt of the day has written the path, `DefinitionError` for columns that
    cannot be written, `InputError` for rows that do not fit into one object,
    and `DataError` for a value that the format cannot hold. For a large frame, Spark wraps the last two into its own.
    """
    if file_format.is_flat:
        _expect_flat(frame, file_format.extension)
    files = files_of(context)
    if not parameters.parts and parameters.path.endswith("/"):
        raise DefinitionError("path: a file is expected, and not a folder: set `parts: true`, or name the file")
    day, hour = (context.day.date, context.day.hour) if context.day else (None, None)
    uri = files.uri(parameters.path, day, hour)
    frame = file_format.prepare(frame)
    if parameters.parts:
        written = _write_parts(frame, f"{uri.rstrip('/')}/", files, file_format, context.run)
    else:
        written = _write(frame, files, file_format, lambda _task, _number: uri, run=context.run)
    return {
        "path": files.name(uri),
        "rows": sum(file.rows for file in written),
        "bytes": sum(file.bytes for file in written),
        "files": len(written),
    }


def _expect_flat(frame: DataFrame, file_format: str) -> None:
    """Raise `DefinitionError` for columns that are nested, binary, or of a type that is no single number or string."""
    from pyspark.sql import types as t

    flat = t.BooleanType | t.DateType | t.NullType | t.NumericType | t.StringType | t.TimestampNTZType | t.TimestampType
    others = [f"{f.name} ({f.dataType.simpleString()})" for f in frame.schema if not isinstance(f.dataType, flat)]
    if others:
        raise DefinitionError(
            f"path: {file_format} cannot hold the columns {', '.join(others)}: convert them to string before, for "
            "example with to_json in an sql step, or use write_json or write_parquet"
        )


def _write_parts(
    frame: DataFrame, folder: str, files: ProjectFiles, file_format: OutputFormat, run: Run | None
) -> list[_Written]:
    """Replace the parts in a folder."""
    written: list[_Written] = []

    def write(call: str) -> list[str]:
        def part_uri(task: int, number: int) -> str:
            return folder + part_name(call, task, number, file_format.extension)

        written.extend(_write(frame, files, file_format, part_uri, rotate=True))
        return [file.uri.removeprefix(folder) for file in written]

    replace_parts(files.stores(), folder, run, write)
    return written


def _write(
    frame: DataFrame,
    files: ProjectFiles,
    file_format: OutputFormat,
    uri_of: Callable[[int, int], str],
    *,
    rotate: bool = False,
    run: Run | None = None,
) -> list[_Written]:
    """Write each partition of the frame that has rows, and return the files by URI; one empty file if none has.

    `uri_of` returns the URI of a file from the number of its partition and its number within the partition. `rotate`
    starts a new file where one is full. Otherwise there is one partition, and a full file is an error. `run` is the run
    that replaces the object; parts have names of their own.
    """
    schema = nullable_schema(frame)

    def store_file(writer: FileWriter, uri: str, rows: int) -> _Written:
        body = writer.finish()
        if not rotate and len(body) > MAX_OBJECT_BYTES:
            raise too_large(uri)
        put_object(files.stores(), uri, body, run)
        return _Written(uri, rows, len(body))

    def too_large(uri: str) -> InputError:
        return InputError(
            f"path: {files.name(uri)}: more than {MAX_OBJECT_BYTES:,} bytes in one file: set `parts: true`"
        )

    def write_partition(partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Mapping[str, Any]]:
        number, rows = 0, 0
        writer: FileWriter | None = None
        try:
            for batch in batches:
                if writer and rotate and (not writer.has_room(batch.num_rows) or writer.size() > MAX_OBJECT_BYTES):
                    yield store_file(writer, uri_of(partition, number), rows)._asdict()
                    number, rows, writer = number + 1, 0, None
                writer = writer or file_format.open(schema)
                writer.write(batch)
                rows += batch.num_rows
                if not rotate and writer.size() > MAX_OBJECT_BYTES:
                    raise too_large(uri_of(partition, number))
            if writer:
                yield store_file(writer, uri_of(partition, number), rows)._asdict()
        finally:
            if writer:
                writer.close()

    rows = map_batches(frame, write_partition, _COLUMNS, one_task=not rotate)
    written = sorted(_Written(*row) for row in rows)
    return written or [store_file(file_format.open(schema), uri_of(0, 0), 0)]
