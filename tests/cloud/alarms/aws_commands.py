"""The AWS commands of the runbooks, run in this process by the AWS command line, which saves its start."""

from __future__ import annotations

import io
import json
import re
import shlex
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import pytest
from awscli.clidriver import create_clidriver

from tests.cloud.alarms.drill import PIPELINE
from tests.conftest import ROOT, Cloud

PAGES = sorted(page for page in (ROOT / "docs" / "runbooks").glob("*.md") if page.stem != "README")
_PLACEHOLDER = re.compile(r"\b(?:[A-Z]{2,}_)?(?:ARN|URL|BUCKET|ID|HANDLE|KEY|MACHINE|PIPELINE|SOURCE)\b")
# The value of a placeholder is in the result of the command before.
_VALUES = {
    "QUEUE_URL": r'"QueueUrl": "([^"]+)"',
    "HANDLE": r'"ReceiptHandle": "([^"]+)"',
    "EXECUTION_ARN": r'"executionArn": "([^"]+)"',
    "QUEUE_ARN": r'"QueueArn": "([^"]+)"',
    "KEY": r'^"(\S+\.json)"$',
    "MACHINE_ARN": r"^(arn:\S+:stateMachine:\S+)$",
}
# MiniStack lacks the operation of SQS. The deployment of the tests has no scheduler: test_runbooks.py of tests/infra
# compares the names with the template of one that has.
_NOT_HERE = {
    "aws sqs start-message-move-task": "(InvalidAction)",
    "aws scheduler get-schedule": "(ResourceNotFoundException)",
    "aws logs tail /aws/lambda/slackwater-start-scheduled": "(ResourceNotFoundException)",
}
"""The commands that fail on this cloud, by their start, with their errors."""
_SECONDS = {"h": 3600, "d": 86400}


def commands_of(page: str, program: str) -> list[str]:
    """Return the commands of the fenced blocks of a runbook that begin with a program, in order, one line each."""
    text = next(path for path in PAGES if path.stem == page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith(f"{program} ")]


@dataclass(kw_only=True)
class AwsCommands:
    """Runs the AWS commands of runbooks, and remembers of which pages."""

    cloud: Cloud
    run_pages: set[str] = field(default_factory=set)

    def __call__(self, page: str, **values: str) -> list[str]:
        """Run the commands of a page in order; return what each prints, without those of `_NOT_HERE`.

        `values` are those of placeholders that no command of the page shows. Asserts that each exits with 0.
        """
        self.run_pages.add(page)
        values, printed = {"PIPELINE": PIPELINE, "SOURCE": "flights", **values}, list[str]()
        for line in commands_of(page, "aws"):
            for name, pattern in _VALUES.items():
                if name not in values and (shown := re.search(pattern, printed[-1] if printed else "")):
                    values[name] = shown[1]
            code, out, errors = self._run(_PLACEHOLDER.sub(lambda match: values[match[0]], line))
            error = next((error for command, error in _NOT_HERE.items() if line.startswith(command)), "")
            assert (code == 0) == (not error), f"{line}: exit {code}\n{errors}"
            assert error in errors
            printed += [] if error else [out]
        return printed

    def _run(self, command: str) -> tuple[int, str, str]:
        # The command line writes copied files to the buffer of standard output.
        out, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
            for name, value in self.cloud.environment.items():
                patch.setenv(name, value)
            # Some services of version 1, the one on PyPI, ignore `AWS_ENDPOINT_URL`.
            code = create_clidriver().main(
                [*_version_1(shlex.split(command)[1:]), "--endpoint-url", self.cloud.endpoint]
            )
        out.flush()
        return code, out.buffer.getvalue().decode(), errors.getvalue()


def _version_1(words: list[str]) -> list[str]:
    """Return the words of a command for version 1 of the AWS command line.

    Version 1 has no `logs tail`, for which version 2 makes the same request, and takes a payload only as it is written.
    """
    match words:
        case ["logs", "tail", group, "--since", since]:
            start = int(1000 * (time.time() - int(since[:-1]) * _SECONDS[since[-1]]))
            return ["logs", "filter-log-events", "--log-group-name", group, "--start-time", str(start)]
        case [*before, "--cli-binary-format", "raw-in-base64-out", "--payload", payload, output]:
            return [*before, "--payload", payload, output]
    return words


def executions(printed: str) -> list[dict[str, Any]]:
    """Return the executions that `aws stepfunctions list-executions` has printed."""
    listed: list[dict[str, Any]] = json.loads(printed)["executions"]
    return listed
