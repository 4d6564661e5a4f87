"""Checks what is deployed, without AWS and without building: `python -m infra.lint`.

It synthesises the app with stand-ins for the artefacts, holds it to cdk-nag's AWS Solutions rules, the templates to
cfn-lint, and every state machine in them to asl-validator, which parses JSONata and follows every transition.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra import NODE_FOLDER
from infra.app import ROOT, add_stacks
from infra.artefacts import Artefacts
from infra.settings import Settings, load_settings

_VALIDATOR = ".slackwater/tools/node_modules/.bin/asl-validator"
_CFN_LINT = Path(sys.executable).with_name("cfn-lint")
_IGNORED = "W3005"
"""A dependency that is stated twice: CDK writes it so."""


def stand_ins(folder: Path) -> Artefacts:
    """Make artefacts that hold nothing, for what only looks at the templates."""
    layer, archive = folder / "layer.zip", folder / "environment.tar.gz"
    with zipfile.ZipFile(layer, "w") as packed:
        packed.writestr(zipfile.ZipInfo("python/none"), "")  # the same bytes each time
    archive.write_bytes(b"")
    return Artefacts(layer=layer, archive=archive, code="none")


def context(root: Path = ROOT) -> dict[str, Any]:
    """Return the context values of `cdk.json`."""
    found: dict[str, Any] = json.loads((root / "cdk.json").read_text(encoding="utf-8"))["context"]
    return found


def synthesise(folder: Path, *, settings: Settings, artefacts: Artefacts, root: Path = ROOT) -> dict[str, Any]:
    """Synthesise into `folder`; return the templates by stack. What cdk-nag finds is in `validation-report.json`.

    Raises what `infra.app.add_stacks` does.
    """
    app = App(context=context(root), outdir=str(folder))
    add_stacks(app, settings=settings, artefacts=artefacts, root=root)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError as error:
        if "ValidationFailed" not in str(error):
            raise
    return {
        path.name.removesuffix(".template.json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.template.json"))
    }


def nag_findings(folder: Path) -> Iterator[str]:
    """What cdk-nag says against a synthesised app: place, rule and words."""
    for report in json.loads((folder / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]:
        for found in report.get("violations", []):
            for where in found["violatingConstructs"]:
                yield f"{where['constructPath']}: {found['ruleName']}: {found['description']}"


def template_findings(folder: Path) -> Iterator[str]:
    """What cfn-lint says against the synthesised templates."""
    templates = [str(path) for path in sorted(folder.glob("*.template.json"))]
    command = [str(_CFN_LINT), "--format", "parseable", "--ignore-checks", _IGNORED, "--", *templates]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own templates
    yield from filter(None, (done.stdout + done.stderr).splitlines())


def definitions(template: Mapping[str, Any]) -> dict[str, str]:
    """A template's state machines by name, each definition with its placeholders filled."""
    machines = (
        resource["Properties"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::StepFunctions::StateMachine"
    )
    filling = "arn:aws:lambda:us-east-1:123456789012:function:any"
    return {
        machine["StateMachineName"]: re.sub(r"\$\{\w+\}", filling, machine["DefinitionString"]) for machine in machines
    }


def machine_findings(name: str, definition: str, *, root: Path = ROOT) -> Iterator[str]:
    """What asl-validator says against a definition; it knows JSONata on one line only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.asl.json")
        path.write_text(definition.replace("\\n", " "), encoding="utf-8")
        command = [str(NODE_FOLDER / "node"), str((root / _VALIDATOR).resolve()), "--json-path", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own machine
    if done.returncode:
        yield f"{name}: {(done.stdout + done.stderr).strip()}"


def main() -> int:
    """Print every finding; return 1 if there is one."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "cdk.out")
        settings = load_settings(context()).model_copy(update={"airflow": True})  # it only adds: a stack, and alarms
        templates = synthesise(folder, settings=settings, artefacts=stand_ins(Path(scratch)))
        findings = [*nag_findings(folder), *template_findings(folder)]
        machines = {name: text for template in templates.values() for name, text in definitions(template).items()}
        for name, definition in machines.items():
            findings.extend(machine_findings(name, definition))
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"{len(templates)} templates, {len(machines)} state machines: {len(findings)} findings\n")
    return 1 if findings or not machines else 0


if __name__ == "__main__":
    sys.exit(main())
