"""Profiles of the AWS configuration that assume a role, for commands that a person runs."""

from __future__ import annotations

import getpass
import os
import warnings
from pathlib import Path

from botocore.credentials import JSONFileCache

from slackwater.aws.clients import default_session
from slackwater.aws.failures import translated
from slackwater.errors import InputError

_ASSUME_ROLE = "assume-role"


def use_terminal() -> None:
    """Let the default session ask for the MFA code of a profile on the terminal, and keep the temporary credentials.

    They are kept where the AWS CLI keeps its own, so that the code is not asked for again until they expire. Without a
    terminal, the first call to AWS raises `InputError`.
    """
    provider = default_session()._session.get_component("credential_provider").get_provider(_ASSUME_ROLE)
    provider.cache = JSONFileCache(Path.home() / ".aws" / "cli" / "cache")
    provider._prompter = _ask_for_code


def child_environment() -> dict[str, str]:
    """Return the environment for a child process that uses AWS with another SDK, such as the CDK.

    It names the region of this process. If this process has assumed the role of a profile, the child gets the same
    temporary credentials, because it could not ask for an MFA code.
    """
    session = default_session()
    environment = dict(os.environ)
    if session.region_name:
        environment |= {"AWS_REGION": session.region_name, "AWS_DEFAULT_REGION": session.region_name}
    # Without a role in the profile there is nothing to pass on, and reading credentials may wait for a network.
    if "role_arn" not in session._session.get_scoped_config():
        return environment
    credentials = session.get_credentials()
    if credentials is not None and credentials.method == _ASSUME_ROLE:
        with translated(f"assume the role of profile {session.profile_name}"):
            frozen = credentials.get_frozen_credentials()
        environment |= {
            "AWS_ACCESS_KEY_ID": frozen.access_key,
            "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
            "AWS_SESSION_TOKEN": frozen.token,
        }
        # The AWS SDK for JavaScript prefers a profile to the variables above.
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
            environment.pop(name, None)
    return environment


def _ask_for_code(prompt: str) -> str:
    with warnings.catch_warnings():
        # Without a terminal, getpass warns and reads from standard input, which may be the events to push.
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(prompt)
        except (EOFError, getpass.GetPassWarning) as error:
            profile = default_session().profile_name
            raise InputError(
                f"the profile {profile} needs an MFA code, and there is no terminal to ask for it: run "
                f"`aws configure export-credentials --profile {profile} --format env` on a terminal, set the variables "
                f"that it prints, and unset AWS_PROFILE"
            ) from error
