"""The sample project that `slackwater init` writes."""

from __future__ import annotations

import shutil
from pathlib import Path

from slackwater.dev.editor_schemas import write_schemas
from slackwater.errors import InputError
from slackwater.project.installation import deployed_files


def write_project(folder: Path) -> list[str]:
    """Write the files of the sample project, and the schemas for editors; return the paths of the files, sorted.

    Raises `InputError` if the folder is not empty, or cannot be written.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty: name a new or an empty folder, such as {folder / 'my_project'}")
        shutil.copytree(deployed_files() / "examples" / "orders", folder, dirs_exist_ok=True)
        # With the dot, it would apply to the sample project itself.
        (folder / "gitignore").rename(folder / ".gitignore")
        write_schemas(folder)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{folder} cannot be written ({reason}): name a folder that you may create") from error
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(file) for file in files if file.parts[0] != ".slackwater")
