"""AWS clients with bounded time-outs and retries of transient failures."""

from __future__ import annotations

import threading
from functools import cache
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


# For functions that run for at most a minute. A call that AWS never answers takes at most 18 seconds and two pauses
# of 1 and 2 seconds, so it fails before the function's own timeout, and the log has its error.
SHORT_CONFIG = CONFIG.merge(
    Config(connect_timeout=1, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
)
# A session must not create two clients at the same time.
_CREATING = threading.Lock()


@cache
def default_session() -> boto3.session.Session:
    """Return the session of this process, for the region, credentials and endpoint of the environment.

    Its clients share what boto3 reads from large JSON files, such as the rules of endpoints: 0.05 s for each client.
    """
    return boto3.session.Session()


def client(service: str, *, session: boto3.session.Session | None = None, config: Config = CONFIG) -> Any:
    """Return a client of `service` of `session`, by default of `default_session()`.

    Raises `InputError` when neither names a region.
    """
    try:
        with _CREATING:
            return (session or default_session()).client(service, config=config)
    except NoRegionError as error:
        raise InputError(
            "no AWS region is set: set AWS_REGION, or start the local cloud with `slackwater local up`"
        ) from error
