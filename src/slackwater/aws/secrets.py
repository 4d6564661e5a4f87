"""Credentials in Secrets Manager and in Systems Manager's parameters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError
from pydantic import ValidationError

from slackwater.aws.clients import client
from slackwater.aws.failures import code_of, translated
from slackwater.errors import DefinitionError, ObjectMissing
from slackwater.receiver.partners.credentials import UNSENDABLE, Credentials

_KEPT_SECONDS = 300.0
"""After a change, the old ones are used no longer than this."""
_FORM = "a JSON object with a `token`, or with a `username` and a `password` or a `private_key`"


class CloudSecrets:
    """`slackwater.receiver.partners.credentials.Secrets` over both; what was read is kept in memory for up to five minutes."""

    def __init__(self, *, connect: Callable[[str], Any] = client, clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._kept: dict[str, tuple[float, Credentials]] = {}

    def read(self, reference: str) -> Credentials:
        """Return what `secretsmanager:<name>` or `ssm:<name>` holds.

        Raises `CloudError`, or `DefinitionError` when that is no `Credentials`; neither shows its content.
        """
        until, known = self._kept.get(reference, (0.0, None))
        if known and self._clock() < until:
            return known
        found = _parsed(self._text(reference))
        if isinstance(found, str):
            raise DefinitionError(f"{reference} holds no credentials: {found} is expected there")
        self._kept[reference] = (self._clock() + _KEPT_SECONDS, found)
        return found

    def _text(self, reference: str) -> str:
        store, _, name = reference.partition(":")
        with translated(f"read the credentials in {reference}"):
            try:
                if store == "ssm":
                    answer = self._connect("ssm").get_parameter(Name=name, WithDecryption=True)
                    return str(answer["Parameter"]["Value"])
                return str(self._connect("secretsmanager").get_secret_value(SecretId=name).get("SecretString", ""))
            except ClientError as error:
                if code_of(error) in {"ResourceNotFoundException", "ParameterNotFound"}:
                    raise ObjectMissing(
                        f"there is no {reference} in this account and region: make it, with {_FORM}"
                    ) from error
                raise


def _parsed(text: str) -> Credentials | str:
    """Return what is expected where a text is no credentials; pydantic's error would hold what stands there."""
    try:
        return Credentials.model_validate_json(text)
    except ValidationError as error:
        return next((fault["msg"] for fault in error.errors() if fault["type"] == UNSENDABLE), _FORM)
