"""cdk-nag, cfn-lint and asl-validator find nothing in the app, and find the mistakes that they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_iam as iam
from cdk_nag import AwsSolutionsChecks

from infra.lint import machine_findings, nag_findings, template_findings
from tests.infra.assembly import Assembly

pytestmark = pytest.mark.infra


def test_cdk_nag_and_cfn_lint_report_nothing(
    assembly: Assembly, scheduled: Assembly, prod: Assembly, tmp_path: Path
) -> None:
    deployed = [assembly.folder, scheduled.folder, prod.folder]
    assert [finding for folder in deployed for finding in nag_findings(folder)] == []
    # Several have the same template.
    different = {path.read_text(): path.name for folder in deployed for path in folder.glob("*.template.json")}
    for number, (text, name) in enumerate(different.items()):
        (tmp_path / f"{number}-{name}").write_text(text)
    assert len(different) > len(prod.templates) + len(scheduled.templates)
    assert list(template_findings(tmp_path)) == []


def test_cdk_nag_reports_a_known_fault(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    role = iam.Role(Stack(app, "Loose"), "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    role.add_to_policy(iam.PolicyStatement(actions=["s3:*"], resources=["*"]))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    findings = list(nag_findings(tmp_path))
    assert len(findings) == 2
    assert all(finding.startswith("Loose/Role/DefaultPolicy/Resource: AwsSolutions-IAM5[") for finding in findings)


@pytest.mark.parametrize("of", ["assembly", "scheduled"])
def test_every_accepted_finding_belongs_to_one_construct_and_has_a_reason(
    of: str, request: pytest.FixtureRequest
) -> None:
    accepted = _accepted(request.getfixturevalue(of).folder)
    assert accepted
    for path, rule, reason in accepted:
        assert path.count("/") >= 1, f"{rule} is accepted for all of {path}"
        assert len(reason.split()) >= 5, f"{path}: {rule}: {reason!r} is no reason"
        assert rule not in {"AwsSolutions-IAM4", "AwsSolutions-IAM5"}, f"{path}: {rule} is accepted wholesale"


def test_findings_of_only_these_rules_are_accepted(assembly: Assembly) -> None:
    assert {rule.partition("[")[0] for _, rule, _ in _accepted(assembly.folder)} == {
        "AwsSolutions-S1",
        "AwsSolutions-L1",
        "AwsSolutions-IAM5",
        "AwsSolutions-APIG2",
        "AwsSolutions-APIG3",
        "AwsSolutions-APIG4",
        "AwsSolutions-APIG6",
        "AwsSolutions-COG4",
        "AwsSolutions-SF2",
        "AwsSolutions-SQS3",
    }


def test_cfn_lint_reports_a_known_fault(tmp_path: Path) -> None:
    wrong = {"Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketNam": "x"}}}}
    (tmp_path / "wrong.template.json").write_text(json.dumps(wrong))
    assert "BucketNam" in "".join(template_findings(tmp_path))


def test_every_state_machine_is_valid(assembly: Assembly) -> None:
    machines = assembly.machines()
    assert len(machines) == 6
    assert list(machine_findings(machines)) == []


def test_wrong_state_machines_are_reported_by_name() -> None:
    changes: dict[str, tuple[dict[str, Any], str]] = {
        "target": ({"Next": "Nowhere"}, "Nowhere"),
        "expression": ({"Output": "{% $sum( %}"}, "/States/Begin/Output"),
        "path": ({"InputPath": "$.a"}, "/States/Begin"),
        "type": ({"Type": "Pause"}, "/States/Begin"),
        # It is correct: an expression may have several lines.
        "lines": ({"Output": "{% (\n  $a := 1;\n  $a\n) %}"}, ""),
    }
    definitions = {name: json.dumps(_machine(change)) for name, (change, _) in changes.items()}
    reports = "".join(machine_findings(definitions)).split("State machine definition ")[1:]
    for name, (_, finding) in changes.items():
        report = "".join(report for report in reports if f"/{name}.asl.json" in report)
        assert finding in report
        assert bool(finding) == bool(report), report


def _machine(change: dict[str, Any]) -> dict[str, Any]:
    begin = {"Type": "Pass", "Output": "{% $states.input %}", "Next": "Done", **change}
    return {"QueryLanguage": "JSONata", "StartAt": "Begin", "States": {"Begin": begin, "Done": {"Type": "Succeed"}}}


def _accepted(folder: Path) -> list[tuple[str, str, str]]:
    """Path, rule and reason of every accepted finding."""
    accepted: list[tuple[str, str, str]] = []
    for file in folder.glob("*.metadata.json"):
        for path, entries in json.loads(file.read_text()).items():
            for entry in entries:
                if entry["type"] == "aws:cdk:acknowledged-rules":
                    rules = {rule.removeprefix("Annotation::"): reason for rule, reason in entry["data"].items()}
                    accepted.extend((path.strip("/"), rule, reason) for rule, reason in rules.items())
    return accepted
