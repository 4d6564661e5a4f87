"""The sample project that `slackwater init` writes, and what all new projects have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from slackwater.dev.editor_schemas import write_schemas
from slackwater.errors import InputError
from slackwater.project.installation import deployed_files


def write_project(folder: Path) -> list[str]:
    """Write the files of the sample project, and the schemas for editors; return the paths of the files, sorted.

    Raises `InputError` if the folder is not empty, or cannot be written.
    """
    with _translated(folder):
        require_new(folder)
        shutil.copytree(_example(), folder, dirs_exist_ok=True)
        # With the dot, it would apply to the sample project itself.
        (folder / "gitignore").rename(folder / ".gitignore")
        write_schemas(folder)
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
        write_schemas(folder)
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


def _files(folder: Path) -> list[str]:
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(file) for file in files if file.parts[0] != ".slackwater")
