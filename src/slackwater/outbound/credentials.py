"""Credentials by reference: definitions, logs and errors contain the name of a secret, and never its content."""

from __future__ import annotations

import re
from typing import Annotated, Protocol

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, model_validator
from pydantic_core import PydanticCustomError

UNSENDABLE = "unsendable"
"""Type of the validation errors whose message says what is expected and contains no part of the value."""
# Characters that get around a value when somebody copies it, or reads it from a file with a final line end.
_SURROUNDING = " \t\r\n"
# ASCII control characters, which HTTP forbids in a user name and a password (RFC 7617).
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# ASCII without blanks and control characters. Wider than a bearer token by RFC 6750, because issuers differ.
_VISIBLE = re.compile(r"[!-~]+")


def _strip(value: object) -> object:
    # Runs before the validation of types, so the value may have any type.
    plain = value.get_secret_value() if isinstance(value, SecretStr) else value
    return plain.strip(_SURROUNDING) if isinstance(plain, str) else plain


def _expect_no_control(value: str | SecretStr) -> str | SecretStr:
    if _CONTROL.search(value if isinstance(value, str) else value.get_secret_value()):
        raise PydanticCustomError(UNSENDABLE, "a `username` and a `password` without control characters")
    return value


def _expect_visible(value: SecretStr) -> SecretStr:
    if not _VISIBLE.fullmatch(value.get_secret_value()):
        raise PydanticCustomError(UNSENDABLE, "a `token` of visible ASCII characters, without blanks in it,")
    return value


class Credentials(BaseModel):
    """The content of a secret, a JSON object: a user with a password or a private key, or a bearer token.

    Blanks and line ends around a username, a password or a token are removed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    username: Annotated[str, BeforeValidator(_strip), AfterValidator(_expect_no_control)] | None = None
    password: Annotated[SecretStr, BeforeValidator(_strip), AfterValidator(_expect_no_control)] | None = None
    private_key: SecretStr | None = None
    """Without a passphrase: for SFTP in OpenSSH's format, for Snowflake in PEM."""
    token: Annotated[SecretStr, BeforeValidator(_strip), AfterValidator(_expect_visible)] | None = None
    """For HTTPS: sent as `Authorization: Bearer <token>`."""

    @model_validator(mode="after")
    def _expect_complete(self) -> Credentials:
        if self.token is None and (self.username is None or (self.password is None and self.private_key is None)):
            raise ValueError("a `token`, or a `username` with a `password` or a `private_key`, is expected")
        return self


class Secrets(Protocol):
    """Reads credentials from a store of secrets."""

    def read(self, reference: str) -> Credentials:
        """Return the credentials in `secretsmanager:<name>` or `ssm:<name>`.

        Raises `CloudError`, or `DefinitionError` when the secret does not match `Credentials`. No error shows its
        content.
        """
