"""Environments: their presets, the account of each, and several of them in one account."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from infra.app import add_stacks, target
from infra.environments import PRESETS
from infra.settings import Scheduler, Settings
from infra.stacks.storage import StorageStack
from slackwater.costs import prices
from slackwater.errors import DefinitionError, InputError
from slackwater.project.environments import EnvironmentName
from tests.infra.assembly import Assembly, parts_of, settings_of
from tests.infra.rights import resource_name
from tests.infra.stateful import replaced, stateful

pytestmark = pytest.mark.infra


def of(environment: str, **values: Any) -> Settings:
    """The settings of an environment, with these context values."""
    return settings_of(environment=environment, **values)


def test_without_an_environment_nothing_changes() -> None:
    assert settings_of(environments={"prod": {"log_level": "DEBUG"}}) == Settings()


@pytest.mark.parametrize("name", EnvironmentName)
def test_a_preset_is_valid_and_has_a_prefix_of_its_own(name: EnvironmentName) -> None:
    settings = of(name)
    assert settings.prefix == f"slackwater-{name}"
    assert {key: getattr(settings, key) for key in PRESETS[name]} == PRESETS[name]


def test_only_prod_is_protected_and_only_prod_has_airflow_and_only_dev_is_deleted_with_its_data() -> None:
    presets = {name: of(name) for name in EnvironmentName}
    assert [name for name, settings in presets.items() if settings.termination_protection] == ["prod"]
    assert [name for name, settings in presets.items() if settings.schedule is Scheduler.AIRFLOW] == ["prod"]
    assert [name for name, settings in presets.items() if settings.removal_policy == "destroy"] == ["dev"]


def test_an_explicit_setting_replaces_that_of_cdk_json_and_that_one_the_preset() -> None:
    assert of("prod").log_retention_days == 90
    environments = {"prod": {"log_retention_days": 180}, "dev": {"log_retention_days": 3}}
    assert of("prod", environments=environments).log_retention_days == 180
    assert of("prod", environments=environments, log_retention_days="365").log_retention_days == 365


class TestTarget:
    credentials = {"CDK_DEFAULT_ACCOUNT": "111111111111", "CDK_DEFAULT_REGION": "eu-west-1"}

    def test_without_settings_it_is_that_of_the_credentials(self) -> None:
        assert target(account=None, region=None, credentials={}) is None
        env = target(account=None, region=None, credentials=self.credentials)
        assert env
        assert (env.account, env.region) == ("111111111111", "eu-west-1")

    def test_without_credentials_it_is_that_of_the_settings(self) -> None:
        env = target(account="222222222222", region="us-east-1", credentials={})
        assert env
        assert (env.account, env.region) == ("222222222222", "us-east-1")

    def test_credentials_of_another_account_or_region_are_refused_with_the_remedy(self) -> None:
        with pytest.raises(DefinitionError) as error:
            target(account="222222222222", region="us-east-1", credentials=self.credentials)
        lines = str(error.value).splitlines()
        assert lines[0].startswith(
            "account: this deployment belongs to 222222222222, and the credentials are for 111111"
        )
        assert lines[1].startswith(
            "region: this deployment belongs to us-east-1, and the credentials are for eu-west-1"
        )
        assert "AWS_PROFILE" in lines[0]
        assert "slackwater:environments, in cdk.json" in lines[0]


def test_a_price_file_with_an_unknown_key_is_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eu-north-1.json").write_text('{"usd_per_1000_s3_gets": 0.0004}')
    monkeypatch.setattr(prices, "files", lambda _: tmp_path)
    settings = Settings(account="222222222222", region="eu-north-1")
    artefacts: Any = None
    prices.read_prices.cache_clear()
    with pytest.raises(
        InputError, match=r"eu-north-1\.json: delete the unknown keys usd_per_1000_s3_gets, as docs/cost"
    ):
        add_stacks(App(), settings=settings, artefacts=artefacts)


def test_stacks_with_buckets_or_tables_are_protected_in_prod_only(prod: Assembly, assembly: Assembly) -> None:
    with_data = {stack for stack, types in prod.types().items() if types & {"AWS::S3::Bucket", "AWS::DynamoDB::Table"}}
    assert with_data == {"slackwater-prod-storage", "slackwater-prod-schedule"}
    protected = [
        {name for name, item in each.manifest().items() if item.get("properties", {}).get("terminationProtection")}
        for each in (prod, assembly)
    ]
    assert protected == [with_data, set()]


# Properties with names that an account and region can have once for each type.
_NAME_PROPERTIES = (
    *("FunctionName", "StateMachineName", "TopicName", "QueueName", "AlarmName", "LogGroupName", "DashboardName"),
    *("BucketName", "TableName", "RoleName", "ManagedPolicyName", "RestApiName"),
)


def fixed_names(synthesised: Assembly) -> set[tuple[str, str]]:
    """All names that the templates give: of resources, with their types, of stacks, and of exports."""
    names = {("stack", stack) for stack in synthesised.templates}
    for template in synthesised.templates.values():
        exports = (output.get("Export", {}).get("Name") for output in template.get("Outputs", {}).values())
        names |= {("export", name) for name in exports if name}
        for resource in template["Resources"].values():
            properties = resource.get("Properties", {})
            kind = resource["Type"]
            given = [properties.get(key) for key in (*_NAME_PROPERTIES, "Name")]
            given.append(properties.get("DatabaseInput", {}).get("Name"))
            if kind == "AWS::Scheduler::Schedule":  # its name is one of its group's, whose name has the prefix
                given = [f"{resource_name(properties['GroupName'])}/{properties['Name']}"]
                given[0] = given[0].replace("Group", synthesised.folder.parent.name, 1)
            names |= {(kind, name) for name in given if isinstance(name, str)}
    return names


def test_environments_in_one_account_have_no_name_in_common(assembly: Assembly, prod: Assembly) -> None:
    names = [fixed_names(each) for each in (assembly, prod)]
    for each in names:
        assert len(each) > 50
        assert {"stack", "export", "AWS::Lambda::Function", "AWS::CloudWatch::Alarm"} <= {kind for kind, _ in each}
    assert names[0] & names[1] == set()


def own_metrics(value: Any) -> Iterator[str]:
    """The namespaces of our own metrics in a part of a template: of functions, alarms and dashboards."""
    match value:
        case str():
            yield from re.findall(r"^Slackwater(?:/[\w-]+)?$|(?<=\")Slackwater(?:/[\w-]+)?(?=\")", value)
        case dict() | list():
            for inner in value.values() if isinstance(value, dict) else value:
                yield from own_metrics(inner)


def test_environments_in_one_account_have_no_metric_in_common(assembly: Assembly, prod: Assembly) -> None:
    for deployed, prefix in ((assembly, "slackwater"), (prod, "slackwater-prod")):
        for kind in ("AWS::Lambda::Function", "AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard"):
            names = {name for of in deployed.properties(kind).values() for name in own_metrics(of)}
            assert names == {f"Slackwater/{prefix}"}


def patterns(value: Any) -> Iterator[str]:
    """All resources, and ARNs in conditions, of the policies in a template, with the names of what they refer to."""
    match value:
        case {"Effect": "Allow"}:
            for part in (value.get("Resource", []), *value.get("Condition", {}).values()):
                yield from _strings(part)
        case dict():
            yield from patterns(list(value.values()))
        case list():
            for inner in value:
                yield from patterns(inner)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case {"Fn::Join": _}:
            yield resource_name(value)
        case dict():
            for inner in value.values():
                yield from _strings(inner)
        case list():
            for inner in value:
                yield from _strings(inner)


def last_part(arn: str) -> str:
    """What follows account and region in an ARN, without the type: `slackwater-pipeline-*:*` of an execution's."""
    return re.sub(r"^.*AWS::AccountId:", "", arn).removeprefix("log-group:")


@pytest.mark.parametrize(("mine", "theirs"), [("assembly", "prod"), ("prod", "assembly")])
def test_no_permission_of_a_deployment_matches_a_name_of_another(
    mine: str, theirs: str, request: pytest.FixtureRequest
) -> None:
    granting, other = request.getfixturevalue(mine), request.getfixturevalue(theirs)
    allowed = {
        last_part(pattern)
        for template in granting.templates.values()
        for pattern in patterns(template["Resources"])
        if "AWS::AccountId:" in pattern
    }
    [prefix] = [stack.removesuffix("-storage") for stack in granting.templates if stack.endswith("-storage")]
    assert {f"alarm:{prefix}-run-failed-*", f"execution:{prefix}-pipeline-*:*"} <= allowed
    names = {name for kind, name in fixed_names(other) if kind not in {"stack", "export"}}
    arns = {f"{begin}{name}{end}" for name in names for begin, end in _ARN_PARTS}
    assert {(arn, pattern) for pattern in allowed for arn in arns if fnmatchcase(arn, pattern)} == set()


_ARN_PARTS = (
    *(("", ""), ("alarm:", ""), ("function:", ""), ("stateMachine:", ""), ("execution:", ":any"), ("database/", "")),
    *(("table/", "/any"), ("environment/", ""), ("schedule-group/", ""), ("rule/", ""), ("", ":*")),
)


@pytest.mark.parametrize("synthesised", ["assembly", "prod"])
def test_every_alarm_may_publish_to_its_topic(synthesised: str, request: pytest.FixtureRequest) -> None:
    app = request.getfixturevalue(synthesised)
    allowed = {
        last_part(pattern).removeprefix("alarm:")
        for policy in app.resources("AWS::SNS::TopicPolicy").values()
        for pattern in patterns(policy)
        if ":alarm:" in pattern
    }
    kinds = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    names = {name for kind in kinds for name in app.properties(kind, "AlarmName")}
    assert names
    assert {name for name in names if not any(fnmatchcase(name, pattern) for pattern in allowed)} == set()


_KEY = re.compile(r"Key[0-9A-F]{8}")


def test_buckets_tables_and_the_queue_of_events_are_encrypted_with_the_key(prod: Assembly) -> None:
    storage = prod.templates["slackwater-prod-storage"]["Resources"].values()
    encrypted = {
        "AWS::S3::Bucket": lambda of: of["BucketEncryption"],
        "AWS::DynamoDB::Table": lambda of: of["SSESpecification"],
        "AWS::SQS::Queue": lambda of: of["KmsMasterKeyId"],
    }
    properties = [(item["Type"], item["Properties"]) for item in storage if item["Type"] in encrypted]
    assert len(properties) == 9
    for kind, of_resource in properties:
        assert _KEY.search(json.dumps(encrypted[kind](of_resource)))
    [key] = prod.resources("AWS::KMS::Key").values()
    assert key["Properties"]["EnableKeyRotation"]
    # It outlives its stack, also where `removal_policy` is `destroy`: kept objects need it.
    assert (key["DeletionPolicy"], key["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_without_the_setting_no_role_uses_a_key(assembly: Assembly) -> None:
    assert assembly.resources("AWS::KMS::Key") == {}
    assert "kms:" not in json.dumps(assembly.templates)


def test_a_key_of_the_account_is_used_by_its_arn() -> None:
    arn = "arn:aws:kms:eu-west-1:123456789012:key/0a-1b"
    stack = StorageStack(App(), parts_of(Settings(kms_key=arn)))
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::KMS::Key", 0)
    for table in template.find_resources("AWS::DynamoDB::Table").values():
        assert table["Properties"]["SSESpecification"]["KMSMasterKeyId"] == arn


def test_a_new_key_protection_and_retention_replace_nothing_that_holds_data(prod: Assembly) -> None:
    recorded = (Path(__file__).parent / "previous" / "airflow.json").read_text()
    # A deployment of the previous version whose prefix was that of `prod`.
    renamed = recorded.replace("slackwater_", "slackwater_prod_").replace("slackwater-", "slackwater-prod-")
    assert replaced(json.loads(renamed), stateful(prod.templates)) == []
