"""Checks the infrastructure without AWS and without building artefacts: `python -m infra.lint`.

It synthesises the app with placeholder artefacts, then runs cdk-nag's AWS Solutions rules on the app, cfn-lint on the
templates, and asl-validator on every state machine, which parses JSONata and follows every transition. It compares the
machines' calls of services with botocore's models.
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
from infra.app import MOST_ALARMS, ROOT, add_stacks, context, create_app, write_templates
from infra.artefacts import Artefacts
from infra.service_calls import call_findings
from infra.settings import Settings, load_settings
from slackwater.project.project import CodeDigests

_VALIDATOR = ".slackwater/tools/node_modules/.bin/asl-validator"
# W3005 warns about a dependency that a template states twice, W6001 about an output with a value of another stack. The
# CDK generates such templates.
_IGNORED = ("W3005", "W6001")
PLACEHOLDER_VALUE = "arn:aws:lambda:us-east-1:123456789012:function:any"
"""What replaces the placeholders of a definition, so that it can be checked."""


def placeholder_artefacts(folder: Path) -> Artefacts:
    """Create empty artefacts in `folder`, for checks that only read the templates."""
    layer, archive = folder / "layer.zip", folder / "environment.zip"
    with zipfile.ZipFile(layer, "w") as packed:
        packed.writestr(zipfile.ZipInfo("python/none"), "")  # the same bytes each time
    archive.write_bytes(b"")
    return Artefacts(layer=layer, archive=archive, code=CodeDigests())


def synthesise(
    folder: Path, *, settings: Settings, artefacts: Artefacts, root: Path = ROOT, most_alarms: int = MOST_ALARMS
) -> dict[str, Any]:
    """Synthesise into `folder` and return the templates by stack. cdk-nag writes `validation-report.json` there.

    `most_alarms` is how many alarms the monitoring stack has at most.

    Raises the errors of `infra.app.add_stacks` and of `infra.app.write_templates`.
    """
    app = create_app(settings, context=context(root), folder=str(folder))
    add_stacks(app, settings=settings, artefacts=artefacts, root=root, most_alarms=most_alarms)
    return written(app, folder)


def written(app: App, folder: Path) -> dict[str, Any]:
    """Write the templates of `app` and cdk-nag's report into its folder. Return the templates by stack.

    Raises the errors of `infra.app.write_templates`.
    """
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        write_templates(app)
    except RuntimeError as error:
        # Findings of cdk-nag fail the synthesis after it has written its files; `nag_findings` reads them.
        if "ValidationFailed" not in str(error):
            raise
    return {
        path.name.removesuffix(".template.json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.template.json"))
    }


def nag_findings(folder: Path) -> Iterator[str]:
    """Yield cdk-nag's findings of a synthesised app: construct, rule and description."""
    for report in json.loads((folder / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]:
        for violation in report.get("violations", []):
            for construct in violation["violatingConstructs"]:
                yield f"{construct['constructPath']}: {violation['ruleName']}: {violation['description']}"


def template_findings(folder: Path) -> Iterator[str]:
    """Yield cfn-lint's findings of the synthesised templates."""
    from cfnlint.api import ManualArgs, lint_by_config  # noqa: PLC0415 - its import takes two seconds

    templates = [str(path) for path in sorted(folder.glob("*.template.json"))]
    for match in lint_by_config(ManualArgs(templates=templates, ignore_checks=list(_IGNORED))):
        yield f"{match.filename}:{match.linenumber}: {match.rule.id}: {match.message}"


def definitions(template: Mapping[str, Any], *, folder: Path) -> dict[str, str]:
    """Return the definitions of a template's state machines by name, with every placeholder filled.

    `folder` holds the synthesised app with the definitions' files.
    """
    machines = (
        resource["Properties"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::StepFunctions::StateMachine"
    )
    return {
        machine["StateMachineName"]: re.sub(r"\$\{\w+\}", PLACEHOLDER_VALUE, definition(machine, folder=folder))
        for machine in machines
    }


def definition(machine: Mapping[str, Any], *, folder: Path) -> str:
    """Return the definition of a state machine, given by its properties, from the file in the synthesised app."""
    return Path(folder, f"asset.{machine['DefinitionS3Location']['Key']}").read_text(encoding="utf-8")


def machine_findings(definitions: Mapping[str, str], *, root: Path = ROOT) -> Iterator[str]:
    """Yield asl-validator's findings of definitions by name. It supports JSONata expressions on one line only."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(NODE_FOLDER / "node"), str((root / _VALIDATOR).resolve())]
        for name, definition in definitions.items():
            path = Path(folder, f"{name}.asl.json")
            path.write_text(definition.replace("\\n", " "), encoding="utf-8")
            command.extend(("--json-path", str(path)))
        completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own files
    if completed.returncode:
        yield (completed.stderr or completed.stdout).strip()


def main() -> int:
    """Print all findings; return 1 if there are any."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "cdk.out")
        settings = load_settings(context())
        templates = synthesise(folder, settings=settings, artefacts=placeholder_artefacts(Path(scratch)))
        findings = [*nag_findings(folder), *template_findings(folder)]
        machines = {
            name: definition
            for template in templates.values()
            for name, definition in definitions(template, folder=folder).items()
        }
        findings.extend(machine_findings(machines))
        for name, definition in machines.items():
            findings.extend(call_findings(json.loads(definition), unknown=PLACEHOLDER_VALUE, path=name))
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"{len(templates)} templates, {len(machines)} state machines: {len(findings)} findings\n")
    # No state machines would mean that nothing was checked.
    return 1 if findings or not machines else 0


if __name__ == "__main__":
    sys.exit(main())
