"""The keys of sources: who may use them, and who gets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from aws_cdk import App

from infra.app import context
from infra.constructs.encryption import source_keys
from infra.lint import definition, placeholder_artefacts, synthesise
from infra.settings import Settings, load_settings
from infra.stacks.storage import StorageStack
from slackwater.errors import DefinitionError
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.infra.assembly import Assembly, parts_of, policies
from tests.infra.rights import granted

pytestmark = pytest.mark.infra

FLIGHTS, UNREAD = (f"arn:aws:kms:eu-west-1:123456789012:key/{name}" for name in ("flights", "unread"))
KEYS = {"flights": FLIGHTS, "unread": UNREAD}
_UNREAD_SOURCE = "source: unread\ntimestamp: {field: at}\nfields: {at: timestamp}\npush: {}\n"


def a_project(*names: str) -> Project:
    return Project(sources={name: a_source(source=name) for name in names}, pipelines={})


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The example, with a key for `flights` and for a source that no pipeline reads, and none for `weather`."""
    scratch = tmp_path_factory.mktemp("keyed")
    example, project = Path("examples/nyc_flights"), scratch / "project"
    for path in example.glob("*/*.yaml"):
        (project / path.parent.name).mkdir(parents=True, exist_ok=True)
        (project / path.parent.name / path.name).write_bytes(path.read_bytes())
    (project / "sources" / "unread.yaml").write_text(_UNREAD_SOURCE)
    values = {"project": str(project), "source_kms_keys": KEYS}
    settings = load_settings({**context(), **{f"slackwater:{name}": value for name, value in values.items()}})
    folder = scratch / "cdk.out"
    return Assembly(folder, synthesise(folder, settings=settings, artefacts=placeholder_artefacts(scratch)))


def test_every_role_may_use_exactly_the_keys_of_the_sources_that_it_reads_or_writes(keyed: Assembly) -> None:
    read_by_pipelines = {"kms:Decrypt": {FLIGHTS}}
    reads_all = {"kms:Decrypt": {FLIGHTS, UNREAD}}
    writes_all = {**reads_all, "kms:GenerateDataKey": {FLIGHTS, UNREAD}}
    assert uses(keyed) == {
        **dict.fromkeys(("receiveeventsRole", "storeeventsRole", "fetchfileRole", "PullJobRole"), writes_all),
        # These two also run pipelines that are not deployed.
        **dict.fromkeys(("freezeinputsRole", "AnyPipelineJobRole"), reads_all),
        **dict.fromkeys(("checkdaysRole", "PipelinedailydelaysJobRole"), read_by_pipelines),
    }


def uses(synthesised: Assembly) -> dict[str, dict[str, set[str]]]:
    """The keys that each role may use, by action, without roles that may use none."""
    found = {}
    for name in policies(synthesised.templates):
        keys = {action: arns for action, arns in granted(synthesised, name).items() if action.startswith("kms:")}
        if keys:
            found[re.sub(r"(DefaultPolicy)?[0-9A-F]{8}$", "", name)] = keys
    return found


def test_the_functions_and_the_job_that_write_get_the_keys(keyed: Assembly) -> None:
    value = f"flights={FLIGHTS},unread={UNREAD}"
    variables = {
        function["Properties"]["FunctionName"]: function["Properties"]["Environment"]["Variables"]
        for function in keyed.resources("AWS::Lambda::Function").values()
    }
    assert {name: of["SOURCE_KMS_KEYS"] for name, of in variables.items() if "SOURCE_KMS_KEYS" in of} == {
        f"slackwater-{name}": value for name in ("receive-events", "store-events", "fetch-file")
    }
    assert job_argument(keyed) == f"--source-kms-keys={value}"


def job_argument(synthesised: Assembly) -> str:
    """The argument of the job that fetches a large file."""
    machine = synthesised.one("AWS::StepFunctions::StateMachine", "PullMachine")
    [argument] = re.findall(r'"(--source-kms-keys=.*?)"', definition(machine, folder=synthesised.folder))
    return str(argument)


def test_without_the_setting_nobody_gets_a_key(assembly: Assembly) -> None:
    assert uses(assembly) == {}
    assert "SOURCE_KMS_KEYS" not in json.dumps(assembly.templates)
    assert job_argument(assembly) == "--source-kms-keys="


@pytest.mark.parametrize("value", [KEYS, f"flights={FLIGHTS}, unread={UNREAD}"])
def test_the_keys_are_a_mapping_or_a_string_from_the_command_line(value: object) -> None:
    settings = load_settings({"slackwater:source_kms_keys": value})
    assert settings.source_kms_keys == KEYS


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("flights", "source_kms_keys: 'flights' is not of the form source=ARN"),
        ("flights=create", "source_kms_keys.flights: "),
        ({"flights": "arn:aws:kms:eu-west-1:123456789012:alias/mine"}, "source_kms_keys.flights: "),
    ],
)
def test_what_is_no_key_is_refused(value: object, message: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        load_settings({"slackwater:source_kms_keys": value})


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
