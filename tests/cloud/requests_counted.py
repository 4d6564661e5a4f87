"""Counts the requests that a local cloud receives, by service and operation, as the emulator's CloudTrail has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.conftest import Cloud


@contextmanager
def counted_requests(cloud: Cloud) -> Iterator[Counter[str]]:
    """Yield a counter that is filled when the block ends. The emulator keeps the latest 10,000 requests."""
    found = Counter[str]()
    _record(cloud, enabled=True)
    try:
        yield found
    finally:
        _record(cloud, enabled=False)
    events, end, known = dict[str, dict[str, Any]](), None, -1
    # A response has the latest 50 requests up to a time. boto3 would send whole seconds only.
    while len(events) > known:
        known = len(events)
        events |= {event["EventId"]: event for event in _lookup(cloud, end)}
        end = min(event["EventTime"] for event in events.values())
    found.update(f"{event['EventSource'].partition('.')[0]} {event['EventName']}" for event in events.values())


def _record(cloud: Cloud, *, enabled: bool) -> None:
    body = {"cloudtrail._recording_enabled": str(enabled).lower()}
    httpx.post(f"{cloud.endpoint}/_ministack/config", json=body).raise_for_status()


def _lookup(cloud: Cloud, end: float | None) -> list[dict[str, Any]]:
    headers = {
        "x-amz-target": "com.amazonaws.cloudtrail.v20131101.CloudTrail_20131101.LookupEvents",
        "content-type": "application/x-amz-json-1.1",
    }
    request = AWSRequest("POST", f"{cloud.endpoint}/", headers, json.dumps({"EndTime": end} if end else {}))
    SigV4Auth(Credentials("test", "test"), "cloudtrail", cloud.environment["AWS_REGION"]).add_auth(request)
    response = httpx.post(request.url, content=request.body, headers=dict(request.headers))
    response.raise_for_status()
    found: list[dict[str, Any]] = response.json()["Events"]
    return found
