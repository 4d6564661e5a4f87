"""Push: `POST /v1/sources/{source}/events` of the HTTP API."""

from __future__ import annotations

import base64
import binascii
import os
import re
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import client
from slackwater.aws.delivery import raw_delivery
from slackwater.aws.emf import put_metric
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.queue import SqsEventBuffer
from slackwater.aws.tokens import TokenTable
from slackwater.errors import CloudError, PartnerError, SlackwaterError
from slackwater.metrics import Metric
from slackwater.project import Project
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.push.request import ApiResponse, EventsApi, PushRequest, error_response
from slackwater.receiver.push.tokens import KeptTokens, Tokens

logger = Logger()
CORRELATION = "x-correlation-id"
_PRINTABLE = re.compile(r"[ -~]{1,200}")
"""What a partner's correlation id may be: it goes into headers, logs and messages, which do not take every sign."""


class Environment(BaseModel):
    """What the stack tells this function."""

    raw_bucket: str = Field(alias="RAW_BUCKET")
    raw_database: str = Field(alias="RAW_DATABASE")
    token_table: str = Field(alias="TOKEN_TABLE")
    event_queue_url: str = Field(alias="EVENT_QUEUE_URL")
    project_uri: str = Field(alias="PROJECT_URI")
    oidc_issuer: str | None = Field(default=None, alias="OIDC_ISSUER")
    oidc_audience: str = Field(default="", alias="OIDC_AUDIENCE")
    outbound_allow: str = Field(default="", alias="OUTBOUND_ALLOW")


def _now() -> datetime:
    return datetime.now(UTC)


@cache
def _api() -> EventsApi:
    environment = Environment.model_validate(dict(os.environ))
    store = S3ObjectStore(client("s3"))
    delivery = raw_delivery(store, raw_bucket=environment.raw_bucket, raw_database=environment.raw_database)
    return EventsApi(
        tokens=_tokens(environment),
        source=Project.model_validate_json(store.get(environment.project_uri)).source,
        receiver=Receiver(delivery=delivery, now=_now),
        buffer=SqsEventBuffer(client("sqs"), environment.event_queue_url),
        now=_now,
    )


def _tokens(environment: Environment) -> Tokens:
    own = KeptTokens(TokenTable(client("dynamodb"), environment.token_table))
    if environment.oidc_issuer is None:
        return own
    # What these import is 0.2 s of a cold start, and without an issuer nobody needs it.
    from slackwater.receiver.partners.outbound import GuardedTransport, Outbound  # noqa: PLC0415
    from slackwater.receiver.push.jwt_tokens import IssuerKeys, JwtTokens, TokensByForm  # noqa: PLC0415

    outbound = Outbound.of(filter(None, environment.outbound_allow.split(",")))
    keys = IssuerKeys(environment.oidc_issuer, transport=GuardedTransport(outbound))
    return TokensByForm(own=own, issued=JwtTokens(keys, audience=environment.oidc_audience, refused=_log_refusal))


def _log_refusal(why: str) -> None:
    logger.info("JSON Web Token refused", extra={"reason": why})


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer as design.md's interface says; every answer carries the correlation id that the logs have."""
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    correlation_id = _correlation_id(event, headers)
    logger.set_correlation_id(correlation_id)
    answer = _answer(event, headers, correlation_id)
    _count(event["pathParameters"]["source"], answer)
    kept = {name: value for name, value in answer.body.items() if name != "rejected"}
    logger.info(
        "batch answered", extra={"status": answer.status, **kept, "rejected": len(answer.body.get("rejected", ()))}
    )
    return {
        "statusCode": answer.status,
        "headers": {"content-type": "application/json", CORRELATION: correlation_id, **answer.headers},
        "body": answer.text(),
    }


def _correlation_id(event: dict[str, Any], headers: dict[str, str]) -> str:
    theirs = headers.get(CORRELATION, "")
    return theirs if _PRINTABLE.fullmatch(theirs) else str(event["requestContext"]["requestId"])


def _answer(event: dict[str, Any], headers: dict[str, str], correlation_id: str) -> ApiResponse:
    try:
        source = event["pathParameters"]["source"]
        request = PushRequest(source=source, headers=headers, body=_body(event), correlation_id=correlation_id)
        return _api().post(request)
    except binascii.Error:
        return error_response(400, "unreadable_body", "the body could not be decoded")
    except (CloudError, PartnerError):  # the partner that issues tokens among them
        logger.exception("batch not confirmed")
        return error_response(503, "try_again", "the batch could not be stored in full: send the same batch again")
    except SlackwaterError:
        logger.exception("batch not confirmed: to send it again will not help")
        return error_response(
            500, "internal", "the receiver has a fault: keep the batch, tell its operators x-correlation-id"
        )


def _count(source: str, answer: ApiResponse) -> None:
    """Count what became of a batch's events. One that was not read as events of the source is none of its events."""
    if "accepted" not in answer.body:
        return
    counted = {
        Metric.EVENTS_ACCEPTED: answer.body["accepted"],
        Metric.EVENTS_DUPLICATE: answer.body["duplicates"],
        Metric.EVENTS_REJECTED: len(answer.body["rejected"]),
    }
    for metric, events in counted.items():
        if events:
            put_metric(metric, events, source=source)


def _body(event: dict[str, Any]) -> bytes:
    body = event.get("body") or ""
    return base64.b64decode(body) if event.get("isBase64Encoded") else body.encode()
