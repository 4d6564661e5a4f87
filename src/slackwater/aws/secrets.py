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
from slackwater.outbound.credentials import UNSENDABLE, Credentials

# A process reads a secret once for many files. Changed credentials are used after this time at the latest.
_CACHE_SECONDS = 300.0
_FORMAT = "a JSON object with a `token`, or with a `username` and a `password` or a `private_key`"


class CloudSecrets:
    """`slackwater.outbound.credentials.Secrets` over both services, cached in memory for five minutes.

    Powertools' parameter cache would keep what it reads before it is validated, so that corrected credentials would be
    ignored for minutes. Its errors hide the service's error code, and Spark jobs run without it.
    """

    def __init__(self, *, connect: Callable[[str], Any] = client, clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._cache: dict[str, tuple[float, Credentials]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cached credentials out when Spark sends the object to its executors."""
        return {**self.__dict__, "_cache": {}}

    def read(self, reference: str) -> Credentials:
        """Return the credentials in `secretsmanager:<name>` or `ssm:<name>`.

        Raises `CloudError`, or `DefinitionError` when the secret does not have the format of `Credentials`. No error
        shows its content.
        """
        expires_at, cached = self._cache.get(reference, (0.0, None))
        if cached and self._clock() < expires_at:
            return cached
        value = self._value(reference)
        credentials, expected = None, _FORMAT
        try:
            credentials = Credentials.model_validate_json(value)
        except ValidationError as error:
            expected = next((problem["msg"] for problem in error.errors() if problem["type"] == UNSENDABLE), _FORMAT)
        if credentials is None:
            # Raised outside of `except`: pydantic's error holds the secret, and Python would log it as the context.
            raise DefinitionError(f"{reference} holds no valid credentials: {expected} is expected there")
        self._cache[reference] = (self._clock() + _CACHE_SECONDS, credentials)
        return credentials

    def _value(self, reference: str) -> str:
        service, _, name = reference.partition(":")
        with translated(f"read the credentials in {reference}"):
            try:
                if service == "ssm":
                    response = self._connect("ssm").get_parameter(Name=name, WithDecryption=True)
                    return str(response["Parameter"]["Value"])
                return str(self._connect("secretsmanager").get_secret_value(SecretId=name).get("SecretString", ""))
            except ClientError as error:
                if code_of(error) in {"ResourceNotFoundException", "ParameterNotFound"}:
                    raise ObjectMissing(
                        f"there is no {reference} in this account and region: create it, with {_FORMAT}"
                    ) from error
                raise
