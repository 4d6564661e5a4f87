"""The Lambda layer and the Spark archive: their content, their size, and repeatable builds."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import site
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from uv import find_uv_bin

from infra.app import ROOT
from infra.artefacts import (
    LAYER_LIMIT,
    ArtefactBuilder,
    Artefacts,
    archived_steps,
    build_artefacts,
    optional_locks,
    unpacked_size,
    write_project,
)
from infra.packing import BuildFailed, add_bytecode, find_python, pack_zip
from infra.settings import Settings
from slackwater.local.layout import PYTHON
from slackwater.project.project import CodeDigests, Project, load_project
from tests.infra.assembly import THIS_MACHINE
from tests.step_package import PYPROJECT, write_package

pytestmark = pytest.mark.infra

_RUNTIME = ("boto3", "botocore", "s3transfer", "jmespath", "urllib3", "dateutil", "six.py")
"""What Lambda's Python runtime brings."""
_IMAGE = ("pyspark", "py4j")
"""What EMR's image brings."""

_IMPORT = """
import importlib.util, pkgutil, sys
sys.path += sys.argv[1].split(":")
for name in filter(None, sys.argv[2].split(",")):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
for path in sys.argv[3:]:
    spec = importlib.util.spec_from_file_location("entry", path)
    sys.modules["entry"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
import slackwater
print(slackwater.__file__)
"""


def imported(*, path: list[Path], packages: tuple[str, ...] = (), files: list[Path]) -> str:
    """Import packages and files from the standard library and `path` only; return the location of our package."""
    arguments = [":".join(map(str, path)), ",".join(packages), *map(str, files)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _IMPORT, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def only(folder: Path, names: tuple[str, ...]) -> Path:
    """A folder that holds these installed packages and nothing else."""
    folder.mkdir()
    [installed] = [Path(folder) for folder in site.getsitepackages() if Path(folder, names[0]).exists()]
    for name in names:
        (folder / name).symlink_to(installed / name)
    return folder


def pins(lock: str) -> dict[str, str]:
    """The versions that a lock names for this Python."""
    versions = {}
    for line in (ROOT / "requirements" / f"{lock}.txt").read_text().splitlines():
        if line[:1].isalpha():
            requirement = Requirement(line.removesuffix("\\").strip())
            if requirement.marker is None or requirement.marker.evaluate():
                versions[requirement.name] = str(requirement.specifier).removeprefix("==")
    return versions


@pytest.fixture(scope="session")
def layer(artefacts: Artefacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layer")
    with zipfile.ZipFile(artefacts.layer) as packed:
        packed.extractall(folder)
    return folder / "python"


@pytest.fixture(scope="session")
def environment(artefacts: Artefacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    with zipfile.ZipFile(artefacts.archive) as packed:
        packed.extractall(folder)
    return folder


def test_the_layer_contains_every_import_of_the_handlers(layer: Path, tmp_path: Path) -> None:
    handlers = sorted((ROOT / "lambdas").glob("*.py"))
    assert len(handlers) == 20
    path = [layer, only(tmp_path / "runtime", _RUNTIME)]
    origin = imported(path=path, packages=("slackwater.receiver",), files=handlers)
    assert origin.startswith(str(layer))


def test_the_layer_contains_the_prices_of_each_region(layer: Path) -> None:
    folder = Path("slackwater/costs")
    prices = {file.name: file.read_bytes() for file in (ROOT / "src" / folder).glob("*.json")}
    assert "us-east-1.json" in prices
    assert {file.name: file.read_bytes() for file in (layer / folder).glob("*.json")} == prices


def test_the_layer_reads_and_writes_what_the_receiver_does(layer: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import io, pyarrow as pa, pyarrow.compute, pyarrow.csv, pyarrow.dataset, pyarrow.ipc, pyarrow.json\n"
        "import pyarrow.parquet as pq\n"
        "table, out = pa.table({'a': [1, None], 'b': ['x', 'y']}), io.BytesIO()\n"
        "pq.write_table(table, out, compression='zstd')\n"
        "assert pq.read_table(io.BytesIO(out.getvalue()), use_threads=False, pre_buffer=False).equals(table)\n"
        "import zoneinfo\n"
        "zoneinfo.reset_tzpath(to=[])\n"
        "assert zoneinfo.ZoneInfo('America/New_York')\n"
    )
    imported(path=[layer], files=[program])


def test_the_archive_contains_every_import_of_the_spark_jobs(environment: Path, tmp_path: Path) -> None:
    jobs = sorted((ROOT / "glue_jobs").glob("*.py"))
    assert {job.stem for job in jobs} == {"run_stage", "compare_day", "fetch_file", "check_release"}
    late = tmp_path / "late.py"
    late.write_text("import slackwater.receiver.connectors.sftp_connector\n")
    origin = imported(
        path=[environment, only(tmp_path / "image", _IMAGE)],
        packages=tuple(
            # Of `late`, jobs import what compares versions; the page needs Jinja2, which the archive does not have.
            f"slackwater.{name}"
            for name in ("arrow", "spark", "steps", "runs", "pipeline", "receiver.formats")
        ),
        files=[*jobs, late],
    )
    assert origin.startswith(str(environment))


def test_the_layer_fits_lambda_and_leaves_room_for_functions(artefacts: Artefacts) -> None:
    # A function's own package is a few kilobytes; the rest is left for packages that grow.
    assert unpacked_size(artefacts.layer) < LAYER_LIMIT * 4 / 5


def test_packages_of_the_runtime_or_the_image_are_not_included(layer: Path, environment: Path) -> None:
    assert not (layer / "boto3").exists()
    assert not (environment / "pyspark").exists()
    assert (environment / "boto3").exists()


def test_a_second_build_reuses_the_first(artefacts: Artefacts) -> None:
    before = artefacts.layer.stat().st_mtime_ns
    assert build_artefacts(root=ROOT, settings=THIS_MACHINE) == artefacts
    assert artefacts.layer.stat().st_mtime_ns == before


def test_a_build_counts_as_used_when_it_is_reused(artefacts: Artefacts) -> None:
    build = artefacts.layer.parent
    os.utime(build, (0, 0))
    build_artefacts(root=ROOT, settings=THIS_MACHINE)
    assert time.time() - build.stat().st_mtime < 3600


def test_the_same_tree_is_packed_to_the_same_bytes(tmp_path: Path) -> None:
    for name, order in (("one", ("a.py", "b.py")), ("two", ("b.py", "a.py"))):
        for file in order:
            path = tmp_path / name / "package" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {file}\n")
    (tmp_path / "two" / "package" / "a.py").touch()
    for name in ("one", "two"):
        pack_zip(tmp_path / name, tmp_path / f"{name}.zip", under="python/")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_versions_in_the_artefacts_are_those_that_are_tested() -> None:
    tested = pins("dev")
    for lock in ("archive", "archive-snowflake"):
        assert {name for name, version in pins(lock).items() if tested[name] != version} == set()
    # Lambda's Python 3.11 can load no newer ones; see layer.in.
    assert {name for name, version in pins("layer").items() if tested[name] != version} <= {"pyarrow", "pyroaring"}


def test_every_locked_wheel_has_its_hash() -> None:
    for lock in ("layer", "archive", "archive-snowflake"):
        lines = (ROOT / "requirements" / f"{lock}.txt").read_text()
        assert len(re.findall(r"^[a-z0-9-]+==", lines, re.M)) <= lines.count("--hash=sha256:")


@pytest.mark.parametrize("lock", ["layer", "archive", "archive-snowflake"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_locked_package_has_a_wheel_for_each_python_and_processor(
    lock: str, machine: str, tmp_path: Path
) -> None:
    """Resolves only: nothing is downloaded or installed."""
    for python in ("3.12", "3.13") if lock == "layer" else ("3.11", "3.12", "3.13"):
        command = [find_uv_bin(), "pip", "install", "--dry-run", "--quiet", "--no-config", "--target", str(tmp_path)]
        platform = ["--python-platform", f"{machine}-manylinux_2_28", "--python-version", python]
        wheels = [
            "--only-binary",
            ":all:",
            "--no-deps",
            "--require-hashes",
            "--requirement",
            f"requirements/{lock}.txt",
        ]
        done = subprocess.run([*command, *platform, *wheels], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"Python {python}: {done.stderr}"


def test_bytecode_is_written_by_the_python_that_reads_it(tmp_path: Path) -> None:
    assert find_python(PYTHON) == Path(sys.executable)
    assert find_python("3.99") is None
    (tmp_path / "module.py").write_text("VALUE = 1\n")
    add_bytecode(tmp_path, Path(sys.executable))
    [bytecode] = tmp_path.rglob("*.pyc")
    assert bytecode.read_bytes()[:4] == importlib.util.MAGIC_NUMBER


def test_a_packed_project_is_read_back_unchanged(tmp_path: Path) -> None:
    project = load_project(ROOT / "examples" / "nyc_flights", code=CodeDigests(job="abc"))
    assert Project.model_validate_json(write_project(root=tmp_path, project=project).read_bytes()) == project


def test_a_lock_without_hashes_is_refused(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "requirements").mkdir()
    for lock in ("layer.txt", "archive.txt"):
        (tmp_path / "requirements" / lock).write_text("tenacity==9.2.1\n")
    with pytest.raises(BuildFailed, match="hash"):
        build_artefacts(root=tmp_path, settings=Settings())
    assert not list(tmp_path.glob(".slackwater/build/*/*")), "a build that failed leaves nothing behind"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository whose library is empty, and a package of steps next to it."""
    root = tmp_path / "repository"
    (root / "src" / "slackwater").mkdir(parents=True)
    (root / "src" / "slackwater" / "__init__.py").touch()
    (root / "requirements").mkdir()
    (root / "requirements" / "archive.txt").touch()
    system, _, _ = PYPROJECT.partition("[project]")
    packages = '[tool.hatch.build.targets.wheel]\npackages = ["src/slackwater"]\n'
    (root / "pyproject.toml").write_text(f'{system}[project]\nname = "slackwater"\nversion = "1"\n{packages}')
    write_package(tmp_path / "acme")
    return root


def test_packages_of_steps_are_added_to_the_archive(small: Path) -> None:
    def archive(*packages: str) -> Path:
        settings = Settings.model_validate({**THIS_MACHINE.model_dump(), "step_packages": ",".join(packages)})
        return ArtefactBuilder(root=small, settings=settings).archive()

    package = small.parent / "acme"
    from_folder = archive("../acme")
    assert archived_steps(from_folder) == {"in_celsius"}
    (package / ".venv").mkdir()
    (package / ".venv" / "file").touch()
    assert archive("../acme") == from_folder
    command = [find_uv_bin(), "build", "--quiet", "--wheel", "--out-dir", str(small.parent), str(package)]
    subprocess.run(command, check=True)
    from_wheel = archive("../acme_steps-1.0-py3-none-any.whl")
    assert from_wheel != from_folder
    assert zipfile.ZipFile(from_wheel).namelist() == zipfile.ZipFile(from_folder).namelist()
    with pytest.raises(BuildFailed, match=r"step_packages: .*nothing is neither a wheel nor a folder with a pyproject"):
        archive("nothing")


def test_the_archive_has_snowflakes_connector_only_if_a_pipeline_needs_it(small: Path) -> None:
    project = small / "project" / "pipelines"
    project.mkdir(parents=True)
    (project / "sales.yaml").write_text('url: "postgresql://db.example/x"')
    assert optional_locks(project.parent) == []
    (project / "other.yaml").write_text('url: "snowflake://acme.snowflakecomputing.com/x"')
    [lock] = optional_locks(project.parent)
    shutil.copy(ROOT / lock, small / lock)
    builder = ArtefactBuilder(root=small, settings=THIS_MACHINE)
    without, with_connector = builder.archive(), builder.archive([lock])
    added = set(zipfile.ZipFile(with_connector).namelist()) - set(zipfile.ZipFile(without).namelist())
    assert "snowflake/connector/__init__.py" in added
    folders = {name.partition("/")[0] for name in added}
    assert not {"boto3", "botocore", "cryptography", "pandas"} & folders, "the archive has them, or needs none of them"
    assert unpacked_size(with_connector) - unpacked_size(without) < 25 * 2**20
