"""The sample project that `slackwater init` writes."""

from __future__ import annotations

import json
import shutil
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
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty: name a new or an empty folder, such as {folder / 'my_project'}")
        shutil.copytree(deployed_files() / "examples" / "orders", folder, dirs_exist_ok=True)
        # With the dot, it would apply to the sample project itself.
        (folder / "gitignore").rename(folder / ".gitignore")
        schemas = {"source": source_schema(), "pipeline": pipeline_schema(), "test": fixture_schema()}
        for name, schema in schemas.items():
            (folder / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{folder} cannot be written ({reason}): name a folder that you may create") from error
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
