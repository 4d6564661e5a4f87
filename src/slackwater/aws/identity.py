"""The identity that calls AWS."""

from __future__ import annotations

from typing import Any

from slackwater.aws.failures import translated


def caller_arn(sts: Any) -> str:
    """Return the ARN of the user or role whose credentials the client `sts` has. Raises `CloudError`."""
    with translated("read the identity of the caller"):
        return str(sts.get_caller_identity()["Arn"])
