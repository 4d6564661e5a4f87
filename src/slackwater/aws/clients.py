"""AWS clients with bounded time-outs and retries for transient failures."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

CONFIG = Config(
    connect_timeout=5,
    read_timeout=60,
    retries={"mode": "standard", "max_attempts": 5},
    max_pool_connections=32,
    # An upload carries a checksum only where S3 asks for one: our keys and manifests hold SHA-256 digests already.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


def client(service: str, *, session: boto3.session.Session | None = None) -> Any:
    """Return a client of `service` in the region and with the credentials and endpoint that the environment names."""
    return (session or boto3.session.Session()).client(service, config=CONFIG)
