"""Read files of the project with the receiver's readers of file formats."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slackwater.errors import InputError
from slackwater.receiver.formats.read import read_file
from slackwater.sources.file_format import FileFormat
from slackwater.steps.files import ProjectFiles, ProjectPattern
from slackwater.steps.io.folder_parts import only_complete_parts
from slackwater.steps.io.frames import frame_of_parts
from slackwater.steps.io.typed_rows import TypedRows, accepted, declared_columns
from slackwater.steps.step import Extract, StepContext
from slackwater.storage import StoredObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Bytes that are fetched at a time.
_CHUNK = 16 * 2**20


class TypedFiles(TypedRows):
    """Parameters of steps that read files whose columns have no types of their own."""

    path: ProjectPattern
    """Path of a file below the project's files. With `*` for any string without a slash, or with a slash at the end, it
    means several files; those whose names begin with `_` or `.` are left out. A folder that a load step writes is an
    error while its `_SUCCESS` is missing. `{date}` is the day of the run."""


def files_of(context: StepContext) -> ProjectFiles:
    """Return the project's files. Raises `InputError` outside of a deployment, where there are none."""
    if context.files is None:
        raise InputError("path: there are no project files here: run the step in a pipeline, or name their prefix")
    return context.files


def find_files(path: str, context: StepContext) -> list[StoredObject]:
    """Return the objects of a `ProjectPattern`, in order of URI.

    Raises `InputError` if there is no file, and for several files of a folder that a load step has not finished.
    """
    files = files_of(context)
    found = files.find(path, context.day.date if context.day else None)
    if "*" in path or path.endswith("/"):
        return only_complete_parts(found, files)
    return found


def file_reader(name: str, model: type[TypedFiles], format_of: Callable[[Any], FileFormat]) -> Extract:
    """Return the step `name`, which reads files in the format that `format_of` returns from the parameters."""

    def read(parameters: TypedFiles, context: StepContext) -> DataFrame:
        """Return the rows of all files that `path` means, in order of their names.

        Raises `InputError` if there is no file, and `DataError` for a file that cannot be read or has a row that does
        not fit. For many or large files, the second is raised when Spark computes the frame.
        """
        found = find_files(parameters.path, context)
        read = partial(_read_object, files=files_of(context), parameters=parameters, file_format=format_of(parameters))
        return frame_of_parts(context.spark, found, read, size=sum(item.size for item in found))

    return Extract(name=name, parameters=model, read=read, columns=declared_columns)


def _read_object(
    item: StoredObject, *, files: ProjectFiles, parameters: TypedFiles, file_format: FileFormat
) -> Iterator[pa.Table]:
    """Yield an empty table, and then the rows of one file, block by block. The file is on disk meanwhile."""
    yield parameters.schema.empty_table()
    name, source = files.name(item.uri), parameters.definition(file_format)
    with local_copy(item, files) as path:
        for checked in read_file(path, source, name=name, received_at=datetime.now(UTC)):
            yield accepted(checked, parameters, name=name)


@contextmanager
def local_copy(item: StoredObject, files: ProjectFiles) -> Iterator[Path]:
    """Yield a file with the content of an object, which is that of one version; it is deleted afterwards.

    Raises `ObjectMissing`, and `InputError` for an object that was replaced after `item` was listed: one of up to
    `_CHUNK` bytes by another size, a larger one by anything.
    """
    store = files.stores()
    changed = InputError(f"{files.name(item.uri)}: it changed while it was read: run again when nothing writes it")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        if item.size <= _CHUNK:
            # One request reads one version. A replacement of the same size is read, instead of listing each small file.
            if path.write_bytes(store.get(item.uri)) != item.size:
                raise changed
        else:
            try:
                with path.open("wb") as file:
                    for start in range(0, item.size, _CHUNK):
                        file.write(store.get_range(item.uri, start, min(_CHUNK, item.size - start)))
            finally:
                # Also after an error: S3 refuses a range beyond the end of an object that has become shorter.
                if next(store.list(item.uri), None) != item:
                    raise changed
        yield path
