"""Profiles that assume a role: MFA codes, temporary credentials for the CDK, and mistakes in the configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from botocore.credentials import AssumeRoleCredentialFetcher

from slackwater.aws import profiles
from slackwater.aws.clients import client, default_session
from slackwater.aws.profiles import child_environment, use_terminal
from slackwater.errors import InputError

pytestmark = pytest.mark.unit

CONFIG = """
[profile mfa]
role_arn = arn:aws:iam::123456789012:role/deployer
mfa_serial = arn:aws:iam::123456789012:mfa/me
source_profile = base
region = eu-west-1

[profile base]
aws_access_key_id = AKIABASE
aws_secret_access_key = secret
"""


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """An environment without AWS's variables, and a new default session that reads it."""
    (tmp_path / "config").write_text(CONFIG)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    monkeypatch.setattr(os, "environ", {**kept, "HOME": str(tmp_path), "AWS_CONFIG_FILE": str(tmp_path / "config")})
    default_session.cache_clear()
    yield os.environ
    default_session.cache_clear()


@pytest.fixture
def roles(monkeypatch):
    """The calls of AssumeRole, which are answered with temporary credentials."""
    calls = []

    def assume(fetcher):
        calls.append(fetcher._assume_role_kwargs())
        expiry = datetime.now(UTC) + timedelta(hours=1)
        credentials = {"AccessKeyId": "ASIATEMP", "SecretAccessKey": "temporary", "SessionToken": "token"}
        return {"Credentials": {**credentials, "Expiration": expiry.isoformat()}}

    monkeypatch.setattr(AssumeRoleCredentialFetcher, "_get_credentials", assume)
    return calls


def test_the_cdk_gets_the_credentials_of_the_assumed_role_because_it_cannot_ask_for_a_code(
    environment, roles, monkeypatch
):
    monkeypatch.setattr(profiles.getpass, "getpass", lambda _: "123456")
    environment |= {"AWS_PROFILE": "mfa", "AWS_DEFAULT_PROFILE": "mfa"}
    use_terminal()
    child = {name: value for name, value in child_environment().items() if name.startswith("AWS_")}
    assert child == {
        "AWS_CONFIG_FILE": environment["AWS_CONFIG_FILE"],
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "ASIATEMP",
        "AWS_SECRET_ACCESS_KEY": "temporary",
        "AWS_SESSION_TOKEN": "token",
    }
    [call] = roles
    assert (call["SerialNumber"], call["TokenCode"]) == ("arn:aws:iam::123456789012:mfa/me", "123456")


def test_the_code_is_not_asked_for_again_until_the_credentials_expire(environment, roles, monkeypatch):
    codes = ["123456"]
    monkeypatch.setattr(profiles.getpass, "getpass", lambda _: codes.pop())
    environment["AWS_PROFILE"] = "mfa"
    for _ in range(2):
        default_session.cache_clear()
        use_terminal()
        assert child_environment()["AWS_ACCESS_KEY_ID"] == "ASIATEMP"


def test_without_a_terminal_a_profile_with_mfa_is_an_error_that_names_the_remedy(environment):
    environment["AWS_PROFILE"] = "mfa"
    program = (
        "from slackwater.aws import clients, profiles;"
        "profiles.use_terminal();"
        "clients.client('sts').get_caller_identity()"
    )
    # A new session of the operating system has no terminal.
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    [*_, last] = ended.stderr.splitlines()
    assert last.startswith("slackwater.errors.InputError: the profile mfa needs an MFA code, and there is no terminal")
    assert "aws configure export-credentials --profile mfa" in last


def test_a_child_process_keeps_a_profile_without_a_role(environment):
    environment |= {"AWS_PROFILE": "base", "AWS_REGION": "eu-west-1"}
    child = child_environment()
    assert child["AWS_PROFILE"] == "base"
    assert "AWS_ACCESS_KEY_ID" not in child


def test_the_region_is_read_from_aws_region_as_other_sdks_do(environment):
    environment["AWS_DEFAULT_REGION"] = "us-east-1"
    assert client("sts").meta.region_name == "us-east-1"
    default_session.cache_clear()
    environment["AWS_REGION"] = "eu-west-1"
    assert client("sts").meta.region_name == "eu-west-1"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"AWS_PROFILE": "nobody"}, r"profile \(nobody\) could not be found.*AWS_PROFILE"),
        ({"AWS_REGION": "us east"}, "us east.*AWS_REGION"),
        ({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "here"}, "Invalid endpoint: here"),
        ({}, "no AWS region is set"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_an_input_error(environment, variables, message):
    environment |= variables
    with pytest.raises(InputError, match=message):
        client("dynamodb")
