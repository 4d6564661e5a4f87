"""The keys of sources: who may use them, and who gets them."""

from __future__ import annotations

import json
import re

import pytest
from aws_cdk import App

from infra.lint import definition
from infra.settings import Settings
from infra.stacks.storage import StorageStack, source_keys
from slackwater.errors import DefinitionError
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.infra.assembly import Assembly, parts_of, settings_of
from tests.infra.conftest import FLIGHTS_KEY as FLIGHTS
from tests.infra.conftest import UNREAD_KEY as UNREAD
from tests.infra.rights import granted
from tests.rights import calls

pytestmark = pytest.mark.infra

KEYS = {"flights": FLIGHTS, "unread": UNREAD}


def a_project(*names: str) -> Project:
    return Project(sources={name: a_source(source=name) for name in names}, pipelines={})


def test_every_role_may_use_exactly_the_keys_of_the_sources_that_it_reads_or_writes(prod: Assembly) -> None:
    writes, reads = "kms:Decrypt,GenerateDataKey {0} {1}", "kms:Decrypt {0} {1}"
    rows = {
        **dict.fromkeys(
            ("receiveevents", "storeevents", "redriveevents", "fetchfile", "packobjects", "PullJob"), writes
        ),
        # Also of pipelines that are not deployed, or with earlier definitions.
        **dict.fromkeys(("freezeinputs", "SplitJob", "updaterawtables"), reads),
        "checkdays": "kms:Decrypt {0}",
        # Jobs of runs write the rows that their steps reject.
        "PipelinedailydelaysJob": "kms:Decrypt,GenerateDataKey {0}",
        "AnyPipelineJob": writes,
    }
    assert uses(prod) == {role: set(calls((row.format(FLIGHTS, UNREAD),))) for role, row in rows.items()}


def uses(deployed: Assembly) -> dict[str, set[tuple[str, str]]]:
    """The uses of these keys by role, without roles that may use none."""
    found = {role: {pair for pair in pairs if pair[1] in KEYS.values()} for role, pairs in granted(deployed).items()}
    return {role: pairs for role, pairs in found.items() if pairs}


def test_the_functions_and_the_job_that_write_get_the_keys(prod: Assembly) -> None:
    value = f"flights={FLIGHTS},unread={UNREAD}"
    functions = prod.properties("AWS::Lambda::Function", "FunctionName")
    variables = {name: of["Environment"]["Variables"] for name, of in functions.items()}
    assert {name: of["SOURCE_KMS_KEYS"] for name, of in variables.items() if "SOURCE_KMS_KEYS" in of} == {
        f"slackwater-prod-{name}": value
        for name in (*("receive-events", "store-events", "redrive-events", "fetch-file", "pack-objects"),)
    }
    assert job_argument(prod) == f"--source-kms-keys={value}"
    of_pipelines = {"Pipelinedailydelays": f"flights={FLIGHTS}", "Pipelineweeklydelays": ""}
    for name, own in of_pipelines.items():
        machine = prod.one("AWS::StepFunctions::StateMachine", name)
        assert f"{{% '{own}' %}}" in definition(machine, folder=prod.folder)
    # For pipelines that are not deployed.
    outputs = prod.templates["slackwater-prod-processing"]["Outputs"]
    assert outputs["SourceKmsKeys"]["Value"] == value


def job_argument(deployed: Assembly) -> str:
    """The argument of the job that fetches a large file."""
    machine = deployed.one("AWS::StepFunctions::StateMachine", "PullMachine")
    [argument] = re.findall(r'"(--source-kms-keys=.*?)"', definition(machine, folder=deployed.folder))
    return str(argument)


def test_without_the_setting_nobody_gets_a_key(assembly: Assembly) -> None:
    assert "SOURCE_KMS_KEYS" not in json.dumps(assembly.templates)
    assert job_argument(assembly) == "--source-kms-keys="


@pytest.mark.parametrize("value", [KEYS, f"flights={FLIGHTS}, unread={UNREAD}"])
def test_the_keys_are_a_mapping_or_a_string_from_the_command_line(value: object) -> None:
    assert settings_of(source_kms_keys=value).source_kms_keys == KEYS


@pytest.mark.parametrize(
    ("project", "known"), [(a_project("tides", "flights"), "flights, tides"), (a_project(), "none")]
)
def test_an_unknown_source_is_named_with_those_of_the_project(project: Project, known: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        StorageStack(App(), parts_of(Settings(source_kms_keys={"flihgts": FLIGHTS}), project))
    assert str(raised.value) == f"source_kms_keys: no source flihgts in this project (sources: {known})"


def test_more_keys_than_the_environment_of_a_function_holds_are_refused() -> None:
    keys = {f"partner_{number:02}": f"arn:aws:kms:eu-west-1:123456789012:key/{number:036}" for number in range(40)}
    assert source_keys(a_project(*keys), Settings(source_kms_keys=dict(list(keys.items())[:30])))
    with pytest.raises(DefinitionError, match=r"source_kms_keys: 40 entries have 3,479 characters, .* can get 3,000"):
        source_keys(a_project(*keys), Settings(source_kms_keys=keys))
