"""The permissions for Iceberg tables of other systems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_iam as iam
from cdk_nag import AwsSolutionsChecks

from infra.constructs.permissions import grants
from infra.lint import nag_findings
from slackwater.pipeline.definition import Pipeline
from tests.infra.assembly import Assembly
from tests.infra.rights import granted

pytestmark = pytest.mark.infra


def reading(folder: Path, *tables: tuple[str, str]) -> Assembly:
    """Synthesises a role that may read these tables at their locations; each is an input of a pipeline."""
    app = App(outdir=str(folder))
    role = iam.Role(Stack(app, "Stack"), "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
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
    grants.allow_foreign_tables(role, pipelines)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    return Assembly(folder, {"Stack": json.loads((folder / "Stack.template.json").read_text())})


def test_exactly_these_tables_and_their_locations_can_be_read(tmp_path: Path) -> None:
    synthesised = reading(
        tmp_path,
        ("finance.rates", "s3://lake-a/finance/"),
        ("finance.rates", "s3://lake-a/finance"),
        ("finance.fees", "s3://lake-a/fees"),
        ("ops.carriers", "s3://lake-b"),
    )
    permissions = granted(synthesised, "Role")
    objects = {name.rpartition(":::")[2] for name in permissions["s3:GetObject"]}
    assert objects == {"lake-a/finance/*", "lake-a/fees/*", "lake-b/*"}
    assert {name.rpartition(":::")[2] for name in permissions["s3:ListBucket"]} == {"lake-a", "lake-b"}
    assert permissions["glue:GetTable"] == {
        "catalog",
        *("database/finance", "database/ops"),
        *("table/finance/rates", "table/finance/fees", "table/ops/carriers"),
    }
    assert set(permissions) == {"s3:GetObject", "s3:ListBucket", "glue:GetTable"}
    assert list(nag_findings(synthesised.folder)) == []


def test_without_such_a_table_there_are_no_permissions(tmp_path: Path) -> None:
    assert reading(tmp_path).resources("AWS::IAM::Policy") == {}
