"""Which changes of the code change the definition of a pipeline, and so run its days again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.app import ROOT
from infra.code_digest import JOB, code_digests, imported_files, imports_of, is_followed
from slackwater.project.project import load_project
from slackwater.steps.registry import step_modules

pytestmark = pytest.mark.infra

PROJECT = ROOT / "examples" / "nyc_flights"
SQL_ONLY = """
pipeline: totals
sources: [weather]
steps:
  highest:
    step: sql
    depends_on: [weather]
    with: {query: "SELECT origin, max(temp) AS temp FROM weather GROUP BY origin"}
publish: {step: highest, key: [date, origin]}
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of everything that carries code, with a project that has a pipeline without a join."""
    root = tmp_path_factory.mktemp("repository")
    for folder in ("src", "glue_jobs", "lambdas", "requirements", "examples"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "examples" / "nyc_flights" / "pipelines" / "totals.yaml").write_text(SQL_ONLY)
    return root


@pytest.fixture
def changed(copied: Path) -> Iterator[Path]:
    """The copy, with the change of one test, which is undone after it."""
    originals: dict[Path, bytes] = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    yield copied
    for path in [path for path in copied.rglob("*") if path.is_file() and path not in originals]:
        path.unlink()
    for path, content in originals.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def definitions(root: Path) -> dict[str, str]:
    """Return the definition digest of each pipeline of the project, with the code of `root`."""
    project = load_project(root / "examples" / "nyc_flights", code=code_digests(root))
    return {name: project.definition_digest(name) for name in project.pipelines}


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("\n# changed\n")


def test_the_digest_does_not_depend_on_the_folder(copied: Path) -> None:
    assert code_digests(copied) == code_digests(ROOT)


_OUTSIDE = (
    "src/slackwater/receiver/connectors/sftp_session.py",
    "src/slackwater/receiver/push/receive.py",
    "src/slackwater/cli/main.py",
    "src/slackwater/local/cloud.py",
    "src/slackwater/aws/secrets.py",
    "src/slackwater/late/comparison.py",
    "src/slackwater/spark/compare/comparison.py",
    "src/slackwater/spark/compare/paired.py",
    "src/slackwater/spark/version_retention.py",
    "lambdas/record_run.py",
    "glue_jobs/compare_day.py",
    "glue_jobs/fetch_file.py",
    "requirements/layer.txt",
)
_EVERY_RUN = (
    "glue_jobs/run_stage.py",
    "src/slackwater/steps/step.py",
    "src/slackwater/spark/stage.py",
    "src/slackwater/spark/publish.py",
    "src/slackwater/spark/commit.py",
    "src/slackwater/spark/table.py",
    "src/slackwater/spark/inputs.py",
    "src/slackwater/sources/first_by_id.py",
    "src/slackwater/arrow/exchange.py",
    "src/slackwater/arrow/files.py",
    "src/slackwater/pipeline/graph.py",
    "src/slackwater/runs/period.py",
    "requirements/archive.txt",
)
_STEPS = {
    "src/slackwater/steps/transform/join.py": {"daily_delays"},
    "src/slackwater/steps/transform/sql.py": {"daily_delays", "totals"},
    "src/slackwater/steps/spark_query.py": {"daily_delays", "totals"},
}
_PIPELINES = {"daily_delays", "weekly_delays", "totals"}


@pytest.mark.parametrize(
    ("path", "pipelines"),
    [*((path, set()) for path in _OUTSIDE), *((path, _PIPELINES) for path in _EVERY_RUN), *_STEPS.items()],
)
def test_code_changes_the_pipelines_whose_runs_execute_it(changed: Path, path: str, pipelines: set[str]) -> None:
    before = definitions(changed)
    append(changed / path)
    after = definitions(changed)
    assert {name for name in before if after[name] != before[name]} == pipelines


def test_a_new_step_changes_no_pipeline_until_one_uses_it(changed: Path) -> None:
    before = definitions(changed)
    shutil.copy(changed / "src/slackwater/steps/transform/sql.py", changed / "src/slackwater/steps/transform/sql2.py")
    assert definitions(changed) == before
    assert code_digests(changed).steps["sql2"]


def test_a_helper_of_a_step_counts_once_it_is_imported(changed: Path) -> None:
    helper = changed / "src/slackwater/steps/helper.py"
    helper.write_text("ONE = 1\n")
    before = definitions(changed)
    with (changed / "src/slackwater/steps/transform/join.py").open("a") as step:
        step.write("\n\ndef _later():\n    from slackwater.steps import helper\n\n    return helper\n")
    imported = definitions(changed)
    assert (imported["daily_delays"] != before["daily_delays"], imported["totals"]) == (True, before["totals"])
    helper.write_text("ONE = 2\n")
    assert definitions(changed)["daily_delays"] != imported["daily_delays"]


def test_imports_outside_of_the_followed_modules_are_listed() -> None:
    """A new import fails here: decide whether its code changes the rows of a run, and add it to FOLLOWED or below."""
    modules = [module for _, module in step_modules()]
    files = {ROOT / JOB, *imported_files(ROOT, [*imports_of(ROOT / JOB), *modules])}
    library = {name for file in files for name in imports_of(file) if name.startswith("slackwater.")}
    beyond = {name for name in library if (ROOT / "src" / Path(*name.split("."))).with_suffix(".py").is_file()}
    assert {name for name in beyond if not is_followed(name)} == {
        "slackwater.aws.clients",
        "slackwater.aws.resources",
        "slackwater.aws.objects",
        "slackwater.aws.secrets",
        "slackwater.errors",
        "slackwater.problems",
        "slackwater.formatting",
        "slackwater.model",
        "slackwater.pipeline.definition",
        "slackwater.project.project",
        "slackwater.outbound.credentials",
        "slackwater.receiver.connectors.http_session",
        "slackwater.outbound.ip_addresses",
        "slackwater.outbound.guard",
        "slackwater.runs.added_objects",
        "slackwater.runs.attempt_files",
        "slackwater.runs.inputs.manifest",
        "slackwater.runs.packing.event_files",
        "slackwater.runs.packing.index",
        "slackwater.runs.invalid_input",
        "slackwater.runs.record",
        "slackwater.runs.step_versions",
        "slackwater.sources.counts",  # what a source reports: no row depends on it
        "slackwater.sources.definition",
        "slackwater.sources.fields",
        "slackwater.sources.file_format",
        "slackwater.sources.kms_keys",
        "slackwater.sources.partitions",  # it decides what is listed, which the digest of the inputs covers
        "slackwater.sources.pull_config",
        "slackwater.sources.strptime_format",
        "slackwater.spark.version_retention",
        "slackwater.spark.standalone",
        "slackwater.storage",
    }


def test_imports_are_followed_through_packages_and_functions() -> None:
    files = {
        str(path.relative_to(ROOT / "src/slackwater"))
        for path in imported_files(ROOT, ["slackwater.steps.transform.sql"])
    }
    assert {
        "steps/__init__.py",
        "steps/transform/sql.py",
        "steps/step.py",
        "steps/spark_query.py",
        "arrow/session.py",
    } <= files
    assert not {path for path in files if path.startswith(("aws", "cli", "receiver", "late"))}
