"""Every role may make exactly the calls of `tests/rights.py`, and those that a project adds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_iam as iam
from cdk_nag import AwsSolutionsChecks

from infra.constructs.permissions import grants
from infra.lint import nag_findings, placeholder_artefacts, written
from infra.settings import Settings
from infra.stacks.processing import ProcessingStack
from infra.stacks.receiver import ReceiverStack
from infra.stacks.storage import StorageStack
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.live import Live
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.infra.assembly import Assembly, parts_of
from tests.infra.rights import granted
from tests.rights import (
    AIRFLOW,
    EVENTBRIDGE,
    FUNCTIONS,
    JOBS,
    LINEAGE,
    LINEAGE_SECRET,
    MACHINES,
    REMOVING_ARROW_FILES,
    ROLES,
    SENDING_LINEAGE,
    STARTING_DAG_RUNS,
    calls,
)

pytestmark = pytest.mark.infra

# What the settings of the fixture `scheduled` add: jars in S3, `intermediate_days: 0`, `openlineage`, and Airflow.
_MORE = {
    **STARTING_DAG_RUNS,
    **dict.fromkeys(JOBS, ("s3:GetObject code/iceberg.jar",)),
    **SENDING_LINEAGE,
    **LINEAGE_SECRET,
    "recordrun": (*REMOVING_ARROW_FILES["recordrun"], *SENDING_LINEAGE["recordrun"]),
}

_PLAIN = Pipeline.model_validate(
    {
        "pipeline": "p",
        "sources": ["s"],
        "steps": {"end": {"step": "sql", "depends_on": ["s"], "with": {"query": "SELECT 1"}}},
        "publish": {"step": "end", "key": ["date"]},
    }
)


@pytest.mark.parametrize(
    ("of", "schedule", "more"), [("assembly", EVENTBRIDGE, {}), ("scheduled", AIRFLOW | LINEAGE, _MORE)]
)
def test_every_role_may_make_exactly_the_calls_that_are_listed(
    of: str, schedule: dict[str, Any], more: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    listed = {role: set(calls((*rows, *more.get(role, ())))) for role, rows in {**ROLES, **schedule}.items()}
    permissions = granted(request.getfixturevalue(of))
    assert permissions.keys() == listed.keys()
    for role, allowed in permissions.items():
        assert (role, allowed - listed[role], listed[role] - allowed) == (role, set(), set())


@pytest.mark.parametrize(
    ("live", "started"), [({"windows": "10m"}, {"stateMachine:slackwater-pipeline-p"}), ({"every": "10m"}, set())]
)
def test_full_windows_start_only_pipelines_that_ask_for_it(tmp_path: Path, live: Any, started: set[str]) -> None:
    names: dict[str, dict[str, Any]] = {"p": {"live": Live.model_validate(live)}, "q": {"pipeline": "q"}}
    pipelines = {name: _PLAIN.model_copy(update=changes) for name, changes in names.items()}
    project = Project(sources={"s": a_source(source="s", pull=None, counts={"window": "5m"})}, pipelines=pipelines)
    folder = tmp_path / "cdk.out"
    app, parts = App(outdir=str(folder)), parts_of(Settings(), project, placeholder_artefacts(tmp_path))
    storage = StorageStack(app, parts)
    ProcessingStack(app, parts, storage, ReceiverStack(app, parts, storage))
    stacks = Assembly(folder, written(app, folder))
    allowed = granted(stacks)["awaitinputs"]
    assert {resource for action, resource in allowed if action == "states:StartExecution"} == started
    variables = stacks.one("AWS::Lambda::Function", "recordrun")["Environment"]["Variables"]
    assert bool(variables["AWAIT_INPUTS_FUNCTION"]) is bool(started)


_WRITE = {"Decrypt", "GenerateDataKey"}
_READ_ITEMS = {"Decrypt", "DescribeKey"}
_WRITE_ITEMS = {
    *(_WRITE | _READ_ITEMS),
    *("Encrypt", "ReEncryptFrom", "ReEncryptTo", "GenerateDataKeyWithoutPlaintext"),
}
# By action, and the beginning of what is encrypted.
_KEY_ACTIONS = {
    "s3:GetObject (Raw|Exchange|Warehouse)": {"Decrypt"},
    "s3:PutObject (Raw|Exchange|Warehouse)": _WRITE,
    "sqs:SendMessage EventBuffer": _WRITE,
    "sqs:ReceiveMessage EventBuffer": {"Decrypt"},
    "dynamodb:(GetItem|BatchGetItem|Query) ": _READ_ITEMS,
    "dynamodb:(PutItem|UpdateItem|DeleteItem|BatchWriteItem) ": _WRITE_ITEMS,
}


def test_every_role_may_use_the_key_as_it_uses_what_the_key_encrypts(prod: Assembly) -> None:
    permissions = granted(prod)
    for role, rows in ROLES.items():
        needed = {
            f"kms:{action}"
            for call in map(" ".join, calls(rows))
            for pattern, actions in _KEY_ACTIONS.items()
            if re.match(pattern, call)
            for action in actions
        }
        assert {action for action, resource in permissions[role] if resource == "Key"} == needed, role


# What the job of `slackwater doctor --job` and its state machine use of their roles.
_DOCTOR_USES = {
    *("iam:PassRole", "emr-serverless:StartJobRun", "emr-serverless:TagResource", "emr-serverless:GetJobRun"),
    *("events:PutRule", "events:PutTargets", "events:DescribeRule", "dynamodb:GetItem"),
    *("glue:GetDatabase", "glue:GetTable", "glue:CreateTable", "glue:UpdateTable"),
    *("s3:GetObject asset/", "s3:PutObject logs/", "s3:DeleteObject runs/"),
    *(
        f"s3:{action} {folder}"
        for action in ("GetObject", "PutObject")
        for folder in ("runs/", "slackwater_warehouse/")
    ),
}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("state machine", MACHINES["AnyPipeline"]),
        ("job", JOBS["AnyPipelineJob"]),
        ("`freeze-inputs`", FUNCTIONS["freezeinputs"]),
        ("`record-run`", FUNCTIONS["recordrun"]),
    ],
)
def test_the_operations_page_lists_what_a_run_needs_and_the_job_of_the_doctor_does_not_use(
    name: str, rows: tuple[str, ...]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy" / "account.md").read_text(encoding="utf-8")
    [listed] = re.findall(rf"^\| {name} \| (`.*`.*) \|$", page, re.MULTILINE)
    needed = set()
    for action, resource in calls(rows):
        folder = re.sub(r"^(\w+/)?([a-z_]+)[./].*", r"\2/", resource)
        is_used = name in {"state machine", "job"} and {action, f"{action} {folder}"} & _DOCTOR_USES
        if not is_used and not action.startswith("logs:"):
            needed |= {action, folder} if name == "job" and action in {"s3:GetObject", "s3:PutObject"} else {action}
    assert set(re.findall("`(.*?)`", listed)) == needed


def test_a_job_role_is_passed_to_emr_serverless_only(assembly: Assembly) -> None:
    passing = [
        statement
        for role in assembly.resources("AWS::IAM::Role").values()
        for policy in role["Properties"].get("Policies", [])
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "iam:PassRole"
    ]
    # The role of comparisons is passed with that of splits.
    assert sum(len(it["Resource"]) if isinstance(it["Resource"], list) else 1 for it in passing) == len(JOBS)
    for statement in passing:
        assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}


_SFTP = {
    "url": "sftp://files.example/x",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHk2sL++5mySabi+ODUdHJUi/kpIlwq+KFPdtRylkMtc",
}
_WHOLE = "arn:aws:secretsmanager:eu-west-1:210987654321:secret:theirs-AbCdEf"
_THEIRS = "arn:aws:iam::210987654321:role/exports"
_DATABASE = {"url": "postgresql://db.example/x", "credentials": "secretsmanager:acme/db"}
_STEPS = Pipeline.model_validate(
    {
        "pipeline": "p",
        "sources": ["s"],
        "steps": {
            "a": {"step": "read_sql", "with": {"query": "SELECT 1", "postgres": _DATABASE}},
            "b": {"step": "read_api", "with": {"url": "https://api.example", "credentials": "ssm:/acme/api"}},
            "c": {"step": "sql", "depends_on": ["a", "b", "s"], "with": {"query": "SELECT 1"}},
        },
        "publish": {"step": "c", "key": ["date"]},
        "load": {"d": {"step": "write_table", "depends_on": ["c"], "with": {**_DATABASE, "table": "t"}}},
    }
)


def pulling(*pulls: dict[str, Any]) -> Callable[[Any], None]:
    """Access to the partners of these pulls."""
    sources = {f"s{n}": a_source(source=f"s{n}", pull={"files": "{date}", **pull}) for n, pull in enumerate(pulls)}
    project = Project(sources={**sources, "pushed": a_source(source="pushed", pull=None)}, pipelines={})
    return lambda role: grants.allow_partners(role, project)


def reading(*tables: tuple[str, str]) -> Callable[[Any], None]:
    """Access to these Iceberg tables at their locations; each is an input of a pipeline."""
    pipelines = [
        Pipeline.model_validate(
            {
                "pipeline": f"p{number}",
                "tables": {"t": {"iceberg": table, "location": location}, "days": {"table": "daily"}},
                "steps": {"end": {"step": "sql", "depends_on": ["t", "days"]}},
                "publish": {"step": "end", "key": ["date"]},
            }
        )
        for number, (table, location) in enumerate(tables)
    ]
    return lambda role: grants.allow_foreign_tables(role, pipelines)


@pytest.mark.parametrize(
    ("grant", "expected"),
    [
        pytest.param(
            pulling(
                {"url": "https://files.example/x", "credentials": "secretsmanager:acme/api"},
                {"url": "https://files.example/y", "credentials": "secretsmanager:acme/api"},
                {"url": "https://files.example/z", "credentials": f"secretsmanager:{_WHOLE}"},
                {**_SFTP, "credentials": "ssm:/acme/sftp"},
                {**_SFTP, "credentials": "ssm:plain"},
            ),
            (
                f"secretsmanager:GetSecretValue secret:acme/api-?????? {_WHOLE}",
                "ssm:GetParameter parameter/acme/sftp parameter/plain",
            ),
            id="only the named credentials of partners",
        ),
        pytest.param(
            pulling(
                {"url": "s3://exports-a/acme/daily/"},
                {"url": "s3://exports-a/acme/hourly"},
                {"url": "s3://exports-b"},
                {"url": "s3://exports-c/acme", "role": _THEIRS},
            ),
            (
                "s3:ListBucket,GetObject exports-a/acme/daily/* exports-a/acme/hourly/* exports-b/*",
                f"sts:AssumeRole {_THEIRS}",
            ),
            id="buckets of partners below their URLs, or with their roles",
        ),
        pytest.param(pulling({"url": "https://files.example/x"}), (), id="partners without credentials or buckets"),
        pytest.param(
            reading(
                ("finance.rates", "s3://lake-a/finance/"),
                ("finance.rates", "s3://lake-a/finance"),
                ("finance.fees", "s3://lake-a/fees"),
                ("ops.carriers", "s3://lake-b"),
            ),
            (
                "s3:ListBucket,GetObject lake-a/finance/* lake-a/fees/* lake-b/*",
                "glue:GetTable catalog database/finance database/ops",
                "glue:GetTable table/finance/rates table/finance/fees table/ops/carriers",
            ),
            id="exactly these tables of other systems, and their locations",
        ),
        pytest.param(reading(), (), id="no table of another system"),
        pytest.param(
            lambda role: grants.allow_steps(role, [_STEPS]),
            ("secretsmanager:GetSecretValue secret:acme/db-??????", "ssm:GetParameter parameter/acme/api"),
            id="the credentials that steps name at any depth",
        ),
    ],
)
def test_a_project_adds_exactly_the_permissions_for_what_it_names(
    tmp_path: Path, grant: Callable[[Any], None], expected: tuple[str, ...]
) -> None:
    app = App(outdir=str(tmp_path))
    principal = iam.ServicePrincipal("lambda.amazonaws.com")
    grant(iam.Role(Stack(app, "Stack"), "Some", assumed_by=principal))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    synthesised = Assembly(tmp_path, {"Stack": json.loads((tmp_path / "Stack.template.json").read_text())})
    assert granted(synthesised) == {"Some": set(calls(expected))}
    assert list(nag_findings(tmp_path)) == []


def test_servers_of_steps_are_found_at_any_depth() -> None:
    assert [(place, url) for _, place, url in grants.step_values([_STEPS], "url")] == [
        ("steps.a.with.postgres.url", "postgresql://db.example/x"),
        ("steps.b.with.url", "https://api.example"),
        ("load.d.with.url", "postgresql://db.example/x"),
    ]
