"""Settings of a deployment, other projects and prefixes, and placeholders of state machines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from aws_cdk import Token

from infra.app import ROOT
from infra.lint import context, definitions, placeholder_artefacts, synthesise
from infra.settings import Settings, load_settings
from infra.state_machines import fill_placeholders, read_machine
from slackwater.errors import DefinitionError

pytestmark = pytest.mark.infra

_SOURCE = """
source: tides
timestamp: {field: at, timezone: Europe/London}
fields: {at: timestamp, port: {type: string, required: true}, metres: double, spring: boolean, day: date}
push: {}
"""
_PIPELINE = """
pipeline: heights
sources: [tides]
steps:
  highest: {step: sql, depends_on: [tides], with: {query: "SELECT port, max(metres) AS m FROM tides GROUP BY port"}}
publish: {step: highest, key: [date, port]}
"""


def test_the_settings_of_the_repository_are_valid() -> None:
    assert load_settings(context()) == Settings()


def test_a_setting_may_be_a_string_from_the_command_line() -> None:
    assert load_settings({"slackwater:concurrent_runs": "3", "aws:other": 1}).concurrent_runs == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no_such", 1),
        ("prefix", "Upper Case"),
        ("python_version", "3.10"),
        ("architecture", "sparc"),
        ("removal_policy", "maybe"),
        ("log_retention_days", 29),
        ("emr_release", "latest"),
        ("maximum_vcpu", 0),
        ("queue_minutes", 1),
    ],
)
def test_a_wrong_setting_is_named(key: str, value: object) -> None:
    with pytest.raises(DefinitionError, match=key):
        load_settings({f"slackwater:{key}": value})


def test_every_wrong_setting_is_named_in_one_error() -> None:
    with pytest.raises(DefinitionError, match=r"(?s)idle_minutes.*concurrent_runs"):
        load_settings({"slackwater:idle_minutes": 0, "slackwater:concurrent_runs": 1001})


def test_another_project_has_its_own_tables_and_machines_under_its_own_prefix(tmp_path: Path) -> None:
    project = tmp_path / "ports"
    for folder, name, content in (("sources", "tides", _SOURCE), ("pipelines", "heights", _PIPELINE)):
        (project / folder).mkdir(parents=True)
        (project / folder / f"{name}.yaml").write_text(content)
    settings = Settings(
        prefix="sea-two",
        project=project,
        removal_policy="destroy",
        pre_warmed_executors=2,
        architecture="arm64",
        parallel_days=2,
        oidc_issuer="https://id.example/ports",
        oidc_audience="sea",
        outbound_allow="10.20.0.0/16, files.example:8443",
    )
    templates = synthesise(tmp_path / "cdk.out", settings=settings, artefacts=placeholder_artefacts(tmp_path))
    storage, processing = templates["sea-two-storage"]["Resources"], templates["sea-two-processing"]
    tables = [resource for resource in storage.values() if resource["Type"] == "AWS::Glue::Table"]
    [columns] = [table["Properties"]["TableInput"]["StorageDescriptor"]["Columns"] for table in tables]
    assert [(column["Name"], column["Type"]) for column in columns[:-4]] == [
        ("at", "timestamp"),
        ("port", "string"),
        ("metres", "double"),
        ("spring", "boolean"),
        ("day", "date"),
    ]
    assert templates["sea-two-storage"]["Outputs"]["RawDatabase"]["Value"] == "sea_two_raw"
    assert set(definitions(processing)) == {"sea-two-pull-source", "sea-two-pipeline-heights"}
    monitor = json.loads(definitions(templates["sea-two-late"])["sea-two-monitor-days"])
    assert monitor["States"]["Handle the late days"]["MaxConcurrency"] == 2
    assert {resource["DeletionPolicy"] for resource in storage.values() if "DeletionPolicy" in resource} == {"Delete"}
    [application] = [
        resource["Properties"]
        for resource in processing["Resources"].values()
        if resource["Type"] == "AWS::EMRServerless::Application"
    ]
    assert application["Architecture"] == "ARM64"
    capacity = {entry["Key"]: entry["Value"] for entry in application["InitialCapacity"]}
    assert capacity["Executor"]["WorkerCount"] == 2
    assert capacity["Executor"]["WorkerConfiguration"]["Memory"] == "7 GB"
    [environment] = [
        resource["Properties"]["Environment"]["Variables"]
        for resource in templates["sea-two-receiver"]["Resources"].values()
        if resource.get("Properties", {}).get("FunctionName") == "sea-two-receive-events"
    ]
    assert (environment["OIDC_ISSUER"], environment["OIDC_AUDIENCE"]) == ("https://id.example/ports", "sea")
    assert environment["OUTBOUND_ALLOW"] == "10.20.0.0/16,files.example:8443"


def test_a_missing_project_is_named(tmp_path: Path) -> None:
    settings = Settings(project=tmp_path / "nowhere")
    with pytest.raises(DefinitionError, match="nowhere"):
        synthesise(tmp_path / "cdk.out", settings=settings, artefacts=placeholder_artefacts(tmp_path))


def test_a_placeholder_without_a_value_stops_synthesis(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("lambdas", "glue_jobs", "step_functions", "examples"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copy(ROOT / "cdk.json", root)
    frame = root / "step_functions" / "pipeline.asl.json"
    frame.write_text(frame.read_text().replace("${LogUri}", "${LogPlace}"))
    with pytest.raises(DefinitionError, match=r"pipeline-daily_delays: no value for \$\{LogPlace\}"):
        synthesise(tmp_path / "cdk.out", settings=Settings(), artefacts=placeholder_artefacts(tmp_path), root=root)


def test_a_machine_gets_the_values_of_its_placeholders_only() -> None:
    machine = {"States": {"A": {"Resource": "${Here}", "B": ["x${There}y", "${Empty}", "${Later}"]}}}
    later = Token.as_string({"Ref": "Bucket"})
    values = {"Here": '1 "a"', "There": "2", "Empty": "", "Elsewhere": "3", "Later": later, "Never": later}
    definition, substitutions = fill_placeholders(machine, values, name="m")
    assert json.loads(definition) == {"States": {"A": {"Resource": '1 "a"', "B": ["x2y", "", "${Later}"]}}}
    assert substitutions == {"Later": later}


def test_an_unreadable_machine_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.asl.json"
    wrong.write_text("{")
    with pytest.raises(DefinitionError, match=r"wrong\.asl\.json: not readable as JSON"):
        read_machine(wrong)
    with pytest.raises(DefinitionError, match="no state machine at"):
        read_machine(tmp_path / "none.asl.json")


def test_synthesis_reads_nothing_from_an_account_or_region(assembly_manifest: str) -> None:
    assert "availability-zones" not in assembly_manifest
    assert "missing" not in json.loads(assembly_manifest)
