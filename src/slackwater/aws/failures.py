"""Translate AWS's errors to Slackwater's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError

from slackwater.errors import AccessDenied, CloudError, ObjectMissing, SlackwaterError, Throttled

# Services have different codes for the same error. "404" and "403" come from HEAD requests: their responses have no
# body, so botocore reports the HTTP status.
_ERRORS: dict[str, type[SlackwaterError]] = {
    "NoSuchKey": ObjectMissing,
    "404": ObjectMissing,
    "AccessDenied": AccessDenied,
    "AccessDeniedException": AccessDenied,
    "403": AccessDenied,
    "AuthorizationError": AccessDenied,
    "SlowDown": Throttled,
    "Throttled": Throttled,
    "Throttling": Throttled,
    "ThrottlingException": Throttled,
    "TooManyRequestsException": Throttled,
    "ProvisionedThroughputExceededException": Throttled,
}


def code_of(error: ClientError) -> str:
    """Return the service's own error code."""
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise AWS's errors in this block as Slackwater's. `what` completes "could not ...", as in "read s3://..."."""
    try:
        yield
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "")
        raise _ERRORS.get(code_of(error), CloudError)(f"could not {what}: {code_of(error)}: {message}") from error
    except NoCredentialsError as error:
        raise AccessDenied(
            f"could not {what}: no AWS credentials (set AWS_PROFILE, or start the local cloud)"
        ) from error
    except EndpointConnectionError as error:
        raise CloudError(f"could not {what}: the endpoint does not answer ({error})") from error
    except BotoCoreError as error:
        raise CloudError(f"could not {what}: {error}") from error
