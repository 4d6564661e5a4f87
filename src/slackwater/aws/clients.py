"""AWS clients with bounded time-outs and retries of transient failures."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import NoRegionError

from slackwater.errors import InputError

CONFIG = Config(
    # botocore waits 60 seconds for a connection, longer than the API's function may run.
    connect_timeout=5,
    read_timeout=60,
    # `standard` repeats throttled calls, server errors and lost connections, with exponential pauses.
    retries={"mode": "standard", "max_attempts": 5},
    # Up to 16 threads share a client; with botocore's default of 10, some of them would open a connection per call.
    max_pool_connections=32,
    # Checksums only where an operation requires them: object names and manifests hold SHA-256 digests already, and TLS
    # protects the transfer. A CRC of each body would cost time for large files.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


def client(service: str, *, session: boto3.session.Session | None = None) -> Any:
    """Return a client of `service` for the region, credentials and endpoint of the environment, or of `session`.

    Raises `InputError` when neither names a region.
    """
    try:
        return (session or boto3.session.Session()).client(service, config=CONFIG)
    except NoRegionError as error:
        raise InputError(
            "no AWS region is set: set AWS_REGION, or start the local cloud with `slackwater local up`"
        ) from error
