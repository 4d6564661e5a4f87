"""Stacks for a CDK bootstrap with names and a key of its own."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.deployment import REQUIRED_BOOTSTRAP, bootstrap_version
from slackwater.deploy import cdk as cdk_module
from slackwater.deploy.cdk import Cdk
from slackwater.errors import AccessDenied, InputError
from slackwater.progress import ProgressBoard
from tests.infra.assembly import Assembly
from tests.infra.conftest import BOOTSTRAP_KEY
from tests.infra.rights import granted

pytestmark = pytest.mark.infra


def test_the_templates_use_the_bootstrap_of_the_settings(prod: Assembly) -> None:
    for name, template in prod.templates.items():
        assert template["Parameters"]["BootstrapVersion"]["Default"] == "/cdk-bootstrap/acme/version", name
        assert "cdk-hnb659fds-" not in json.dumps(template), name
    layers = prod.properties("AWS::Lambda::LayerVersion").values()
    assert {layer["Content"]["S3Bucket"] for layer in layers if "Code" not in layer} == {"acme-assets"}


def test_every_role_that_reads_a_deployed_file_may_decrypt_with_the_key(prod: Assembly) -> None:
    permissions = granted(prod).values()
    reading = [pairs for pairs in permissions if any(re.search(r"acme-assets/|^asset\.", name) for _, name in pairs)]
    assert len(reading) >= 8
    for pairs in reading:
        assert {pair for pair in pairs if pair[1] == BOOTSTRAP_KEY} == {("kms:Decrypt", BOOTSTRAP_KEY)}


def test_the_required_version_of_the_bootstrap_is_that_of_the_stacks(assembly: Assembly) -> None:
    required = {
        item.get("properties", {}).get("requiresBootstrapStackVersion") for item in assembly.manifest().values()
    }
    assert required - {None} == {REQUIRED_BOOTSTRAP}


class Parameters:
    """The parameters of SSM; an exception is an error's code."""

    meta = SimpleNamespace(region_name="eu-west-1")

    def __init__(self, **values: str | Exception) -> None:
        self._values = values

    def get_parameter(self, *, Name: str) -> dict[str, Any]:  # noqa: N803 - boto3's name
        value = self._values.get(Name.split("/")[2], Exception("ParameterNotFound"))
        if isinstance(value, Exception):
            raise ClientError({"Error": {"Code": str(value), "Message": "no"}}, "GetParameter")
        return {"Parameter": {"Value": value}}

    def get_caller_identity(self) -> dict[str, str]:
        return {"Account": "123456789012"}


def test_the_version_of_the_bootstrap_with_the_qualifier_is_read() -> None:
    ssm = Parameters(hnb659fds="28", acme="6")
    assert [bootstrap_version(ssm, qualifier=name) for name in ("hnb659fds", "acme", "other")] == [28, 6, 0]
    with pytest.raises(AccessDenied, match="/cdk-bootstrap/acme/version"):
        bootstrap_version(Parameters(acme=Exception("AccessDeniedException")), qualifier="acme")


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Bootstrap an account with these versions of bootstraps; return the CDK's arguments, or none."""

    def bootstrap(qualifier: str, **versions: str) -> str:
        (tmp_path / ".slackwater").mkdir(exist_ok=True)
        program = tmp_path / "cdk"
        program.write_text('#!/bin/sh\necho "$@"\n')
        program.chmod(0o755)
        monkeypatch.setattr(cdk_module, "client", lambda _: Parameters(**versions))
        log = io.StringIO()
        progress = ProgressBoard(stream=io.StringIO())
        Cdk(root=tmp_path, program=program, log=log, progress=progress).bootstrap(qualifier)
        return log.getvalue()

    return bootstrap


@pytest.mark.parametrize(
    ("qualifier", "versions", "bootstraps"),
    [
        ("hnb659fds", {}, True),
        ("hnb659fds", {"hnb659fds": "5"}, True),
        ("hnb659fds", {"hnb659fds": "6"}, False),
        ("acme", {"acme": "21"}, False),
    ],
)
def test_an_account_is_bootstrapped_unless_it_is_in_a_version_that_suffices(
    bootstrap: Any, qualifier: str, versions: dict[str, str], *, bootstraps: bool
) -> None:
    printed = bootstrap(qualifier, **versions)
    assert ("bootstrap aws://123456789012/eu-west-1" in printed) == bootstraps == bool(printed)


def test_a_bootstrap_with_a_name_of_its_own_is_never_created_or_changed(bootstrap: Any) -> None:
    with pytest.raises(InputError, match=r"'acme' .* has no version .* run `cdk bootstrap --qualifier acme`"):
        bootstrap("acme", hnb659fds="28")
    with pytest.raises(InputError, match=r"has version 5 .*version 6 is needed"):
        bootstrap("acme", acme="5")
