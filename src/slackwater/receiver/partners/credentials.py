"""Credentials by reference: definitions, logs and errors name them, and never hold them."""

from __future__ import annotations

import re
from typing import Annotated, Protocol

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, model_validator
from pydantic_core import PydanticCustomError

UNSENDABLE = "unsendable"
"""The type of a validation error whose message says what is expected, and shows nothing of what is there."""
_AROUND = " \t\r\n"
"""What comes along when a text is copied, or is read from a file."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VISIBLE = re.compile(r"[!-~]+")


def _stripped(value: object) -> object:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    return text.strip(_AROUND) if isinstance(text, str) else text


def _expect_line(value: str | SecretStr) -> str | SecretStr:
    if _CONTROL.search(value if isinstance(value, str) else value.get_secret_value()):
        raise PydanticCustomError(UNSENDABLE, "a `username` and a `password` without control characters")
    return value


def _expect_visible(value: SecretStr) -> SecretStr:
    if not _VISIBLE.fullmatch(value.get_secret_value()):
        raise PydanticCustomError(UNSENDABLE, "a `token` of visible ASCII characters, without blanks in it,")
    return value


class Credentials(BaseModel):
    """What a secret holds, as a JSON object: a user with a password or a private key, or a bearer token.

    Blanks and line ends around a username, a password or a token are none of it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    username: Annotated[str, BeforeValidator(_stripped), AfterValidator(_expect_line)] | None = None
    password: Annotated[SecretStr, BeforeValidator(_stripped), AfterValidator(_expect_line)] | None = None
    private_key: SecretStr | None = None
    """OpenSSH's form, not encrypted: SFTP."""
    token: Annotated[SecretStr, BeforeValidator(_stripped), AfterValidator(_expect_visible)] | None = None
    """Sent as `Authorization: Bearer`: HTTPS."""

    @model_validator(mode="after")
    def _is_whole(self) -> Credentials:
        if self.token is None and (self.username is None or (self.password is None and self.private_key is None)):
            raise ValueError("a `token`, or a `username` with a `password` or a `private_key`, is expected")
        return self


class Secrets(Protocol):
    """Where credentials are kept."""

    def read(self, reference: str) -> Credentials:
        """Return what `secretsmanager:<name>` or `ssm:<name>` holds.

        Raises `CloudError`, or `DefinitionError` when that is no `Credentials`; neither shows its content.
        """
