"""Digests of the code that decides a run's output, as `project.json` carries them.

The code that a run executes is found by following imports, from each entry point through the modules of `FOLLOWED`.
A change elsewhere (an SFTP client, a Lambda function, the command line, a step that a pipeline does not use) leaves the
digest of a pipeline unchanged, so that it does not run all of its days again.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from slackwater.errors import DefinitionError
from slackwater.project.installation import library_folder
from slackwater.project.project import CodeDigests
from slackwater.steps.registry import ENTRY_POINTS, installed_steps

ARCHIVE_LOCK = "requirements/archive.txt"
JOB = "glue_jobs/run_stage.py"
STEPS = ("slackwater.steps.extract", "slackwater.steps.transform", "slackwater.steps.load")

# Modules, and packages with all of their modules, whose code decides the rows that a run publishes.
#
# Not followed are the modules that store and transport (aws, storage, runs.record, runs.manifest), and the models of
# definitions (project, sources.definition, pipeline.definition): `Project.definition_digest` covers what a user writes.
FOLLOWED = (
    "slackwater.spark",  # the work of a Spark job
    "slackwater.steps",
    "slackwater.arrow",  # the exchange of frames between stages
    "slackwater.pipeline.graph",  # which steps run together, and in which order
    "slackwater.runs.period",  # which hours belong to a day
    "slackwater.receiver.formats",  # which values steps read from files
    "slackwater.receiver.parsing",
    "slackwater.sources.event_schema",  # which columns a stored event has
    "slackwater.sources.first_by_id",  # which of several events with one id counts
    "slackwater.sources.first_events",
)


# Modules of these packages that decide no rows of a run.
NOT_FOLLOWED = (
    "slackwater.spark.standalone",  # no run executes it: `slackwater.steps` imports it for `slackwater.steps.run`
    "slackwater.spark.version_retention",  # it removes old versions after the publication
)


def code_digests(root: Path) -> CodeDigests:
    """Return the digests of the deployed files in `root`: of the Spark job, and of each step by its module's name.

    The digest of the job covers its entry point, the modules of `FOLLOWED` that it imports, and its archive's lock.
    The digest of a step covers the step's module and the modules of `FOLLOWED` that this module imports; that of a
    step of another package covers all modules of the package.
    """
    steps = {
        path.stem: _digest(root, imported_files(root, [f"{package}.{path.stem}"]))
        for package in STEPS
        for path in sorted(library_folder(root).joinpath(*package.split(".")).glob("[!_]*.py"))
    }
    return CodeDigests(
        job=_digest(root, [root / JOB, root / ARCHIVE_LOCK, *imported_files(root, imports_of(root / JOB))]),
        steps=steps | {name: _digest(*_package_files(module)) for name, module in installed_steps()},
    )


def _package_files(module: str) -> tuple[Path, list[Path]]:
    """Return the folder of the installed package that contains a module, and the package's Python files."""
    package = importlib.util.find_spec(module.partition(".")[0])
    if package is None or package.origin is None:
        raise DefinitionError(f"{module} is an entry point of {ENTRY_POINTS}, but is not installed as Python files")
    origin = Path(package.origin)
    return origin.parent, sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]


def imported_files(root: Path, modules: Iterable[str]) -> set[Path]:
    """Return the files of the modules, and of everything in `FOLLOWED` that they import, directly or not."""
    files: set[Path] = set()
    pending = [path for module in modules for path in _files_of(root, module)]
    while pending:
        path = pending.pop()
        if path not in files:
            files.add(path)
            pending += _files_imported(root, path.read_text(encoding="utf-8"))
    return files


@cache  # many steps import the same modules
def _files_imported(root: Path, code: str) -> tuple[Path, ...]:
    return tuple(path for module in _imports_of(code) for path in _files_of(root, module))


def is_followed(module: str) -> bool:
    """Whether the code of a module decides the rows of a run: whether it is in `FOLLOWED`."""
    return module not in NOT_FOLLOWED and any(module == name or module.startswith(f"{name}.") for name in FOLLOWED)


def _files_of(root: Path, module: str) -> Iterator[Path]:
    """Yield the file of a module and the `__init__.py` of its packages, which Python executes first.

    Files outside of `FOLLOWED` are left out.
    """
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        if not is_followed(name):
            continue
        path = library_folder(root).joinpath(*parts[:length])
        yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def imports_of(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, at its top or inside of functions."""
    yield from _imports_of(path.read_text(encoding="utf-8"))


def _imports_of(code: str) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import name` imports the module `package.name` if there is one.
            names += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return tuple(names)


def _digest(root: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted((name_of(root, path), path) for path in files):
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def name_of(root: Path, path: Path) -> Path:
    """Return the path of a file relative to the deployed files in `root`: the same for a clone and a wheel.

    So the identity of a run does not depend on which of them deploys. Of a file elsewhere, it is only the name.
    """
    library = library_folder(root)
    if path.is_relative_to(root):
        return path.relative_to(root)
    return Path("src", path.relative_to(library)) if path.is_relative_to(library) else Path(path.name)
