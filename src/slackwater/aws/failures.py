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
    "RequestLimitExceeded": Throttled,
    "TransactionConflictException": Throttled,
    "TransactionInProgressException": Throttled,
    "503": Throttled,
}
# Reasons for which DynamoDB cancels a transaction that may succeed later. The other documented reasons say that the
# transaction itself has to change: ConditionalCheckFailed, ValidationError, ItemCollectionSizeLimitExceeded.
_TEMPORARY_REASONS = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"})


def code_of(error: ClientError) -> str:
    """Return the service's own error code."""
    return str(error.response.get("Error", {}).get("Code", ""))


def cancellation_reasons(error: ClientError) -> frozenset[str]:
    """Return the codes of the reasons why DynamoDB has cancelled a transaction; none for any other error."""
    # One reason for each action of the transaction; `None` stands for an action without an error.
    reasons = error.response.get("CancellationReasons", [])
    return frozenset(reason["Code"] for reason in reasons if reason.get("Code", "None") != "None")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise AWS's errors in this block as Slackwater's. `what` completes "could not ...", as in "read s3://..."."""
    try:
        yield
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "")
        reasons = cancellation_reasons(error)
        error_type = _ERRORS.get(code_of(error), CloudError)
        if reasons and reasons <= _TEMPORARY_REASONS:
            error_type = Throttled
        raise error_type(f"could not {what}: {code_of(error)}: {message}") from error
    except NoCredentialsError as error:
        raise AccessDenied(
            f"could not {what}: no AWS credentials (set AWS_PROFILE, or start the local cloud)"
        ) from error
    except EndpointConnectionError as error:
        raise CloudError(f"could not {what}: the endpoint does not answer ({error})") from error
    except BotoCoreError as error:
        raise CloudError(f"could not {what}: {error}") from error
