"""The sample project that `slackwater init` writes, and what all new projects have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from slackwater.dev.testing.definition import fixture_schema
from slackwater.errors import InputError
from slackwater.project.installation import deployed_files
from slackwater.sources.definition import source_schema
from slackwater.validation.pipeline_schema import pipeline_schema


def write_project(folder: Path) -> list[str]:
    """Write the files of the sample project; return their paths in `folder`, sorted.

    Raises `InputError` if the folder is not empty, or cannot be written.
    """
    with _translated(folder):
        require_new(folder)
        shutil.copytree(_example(), folder, dirs_exist_ok=True)
        # With the dot, it would apply to the sample project itself.
        (folder / "gitignore").rename(folder / ".gitignore")
        _write_schemas(folder)
    return _files(folder)


def write_files(folder: Path, contents: Mapping[str, str]) -> list[str]:
    """Write a project with these files, .gitignore and the JSON Schemas; return their paths in `folder`, sorted.

    Raises `InputError` if the folder is not empty, or cannot be written.
    """
    with _translated(folder):
        require_new(folder)
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
        shutil.copyfile(_example() / "gitignore", folder / ".gitignore")
        _write_schemas(folder)
    return _files(folder)


def require_new(folder: Path) -> None:
    """Raise `InputError` if the folder is not empty."""
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: name a new or an empty folder, such as {folder / 'my_project'}")


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{folder} cannot be written ({reason}): name a folder that you may create") from error


def _example() -> Path:
    return deployed_files() / "examples" / "orders"


def _write_schemas(folder: Path) -> None:
    schemas = {"source": source_schema(), "pipeline": pipeline_schema(), "test": fixture_schema()}
    for name, schema in schemas.items():
        (folder / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
