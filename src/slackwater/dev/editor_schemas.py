"""The JSON Schemas in a project's `.slackwater/schemas/`, with which editors check its files as a person types."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slackwater import __version__
from slackwater.errors import SlackwaterError
from slackwater.project.installation import make_state_folder


def editor_schemas() -> Mapping[str, Callable[[], dict[str, Any]]]:
    """Return what makes each schema, by the type of definition that it is for."""
    # Commands import this module when they start: these imports take half a second.
    from slackwater.dev.testing.definition import fixture_schema  # noqa: PLC0415
    from slackwater.sources.definition import source_schema  # noqa: PLC0415
    from slackwater.validation.pipeline_schema import pipeline_schema  # noqa: PLC0415

    return {"source": source_schema, "pipeline": pipeline_schema, "test": fixture_schema}


def schema_comment(name: str) -> str:
    """Return the first line of a file in a folder of the project, by which editors find the schema `name`.

    >>> schema_comment("source")
    '# yaml-language-server: $schema=../.slackwater/schemas/source.schema.json'
    """
    return f"# yaml-language-server: $schema=../.slackwater/schemas/{name}.schema.json"


def write_schemas(project: Path) -> None:
    """Write the schemas of this installation into a project that lacks them; other files of the folder stay.

    Git ignores them. Raises `OSError`, and `DefinitionError` for an installed package with a wrong step.
    """
    folder = make_state_folder(project) / "schemas"
    folder.mkdir(exist_ok=True)
    for name, schema in editor_schemas().items():
        file, text = folder / f"{name}.schema.json", json.dumps(schema(), indent=2) + "\n"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            _replace(file, text)
    _replace(folder / "version", _installed())


def keep_schemas(project: Path) -> None:
    """Write the schemas if those of the project come from another installation, or if it has none.

    A folder without `sources/` is no project yet. A project that cannot be written to keeps what it has.
    """
    marker = project / ".slackwater" / "schemas" / "version"
    with suppress(OSError, SlackwaterError):
        if (project / "sources").is_dir() and not (marker.exists() and marker.read_text() == _installed()):
            write_schemas(project)


def _installed() -> str:
    """Return what identifies this installation: the version, and when a package was last installed or removed.

    Packages may add steps. To list their entry points would take a tenth of a second.
    """
    folders = (Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    times = (folder.stat().st_mtime_ns for folder in folders if folder.is_dir())
    return f"{__version__} {max(times, default=0)}\n"


def _replace(file: Path, text: str) -> None:
    """Write a file, which another process may read or write meanwhile."""
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(file)
