"""Lambda function behind `POST /v1/sources/{source}/events` of the API: receive a pushed batch of events."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from slackwater.aws.clients import BRIEF_CONFIG, SHORT_CONFIG, client
from slackwater.aws.dynamodb.event_counts import DynamoEventCounts
from slackwater.aws.dynamodb.tokens import TokenTable
from slackwater.aws.emf import put_counts
from slackwater.aws.function import FunctionEnvironment
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.partitions import create_raw_writer
from slackwater.aws.queue import SqsEventQueue
from slackwater.errors import CloudError, PartnerError, SlackwaterError
from slackwater.metrics import Metric
from slackwater.project.project import Project
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.push.request import EventsApi, error_response
from slackwater.receiver.push.tokens import CachedTokens, Tokens
from slackwater.sources.kms_keys import parse_source_keys

logger = Logger()
CORRELATION_HEADER = "x-correlation-id"
# Printable ASCII only: the id goes into an HTTP header, log lines and queue messages, and a control character such as a
# line feed could forge a header or a log line. A request with any other id gets the request id of API Gateway.
_CORRELATION_ID = re.compile(r"[ -~]{1,200}")
_GZIP_MAGIC = b"\x1f\x8b"
RESPONSE_SECONDS = 1.0
"""Time before the function's timeout that is kept for the response."""
_TRY_AGAIN = error_response(503, "try_again", "the batch could not be stored in full: send the same batch again")
# One thread: a request that has no time left leaves its batch in this thread, and the next request waits for the end of
# that work instead of holding a second batch in memory. The partner may send the batch again in the meantime.
_worker = ThreadPoolExecutor(max_workers=1)


class ReceiveEventsEnvironment(FunctionEnvironment):
    """Settings of this function."""

    raw_bucket: str
    raw_database: str
    token_table: str
    file_table: str
    event_queue_url: str
    project_uri: str
    oidc_issuer: str | None = None
    oidc_audience: str = ""
    outbound_allow: str = ""
    source_kms_keys: str = ""


@cache
def build_api() -> EventsApi:
    """Build the API once per process, so that later requests reuse its connections and its cached tokens."""
    environment = ReceiveEventsEnvironment.read()
    keys = parse_source_keys(environment.source_kms_keys)
    store = S3ObjectStore(client("s3", config=SHORT_CONFIG), source_keys=keys)
    raw_writer = create_raw_writer(
        store, raw_bucket=environment.raw_bucket, raw_database=environment.raw_database, config=SHORT_CONFIG
    )

    def now() -> datetime:
        return datetime.now(UTC)

    return EventsApi(
        tokens=build_tokens(environment),
        source=Project.model_validate_json(store.get(environment.project_uri)).source,
        receiver=Receiver(raw_writer=raw_writer, now=now),
        queue=SqsEventQueue(client("sqs", config=SHORT_CONFIG), environment.event_queue_url),
        now=now,
    )


@cache
def build_event_counts() -> DynamoEventCounts:
    """Build the counts of events by source and hour, once per process."""
    return DynamoEventCounts(client("dynamodb", config=BRIEF_CONFIG), ReceiveEventsEnvironment.read().file_table)


def build_tokens(environment: ReceiveEventsEnvironment) -> Tokens:
    """Return the lookup of our own tokens, and of the OIDC issuer's tokens if the deployment names an issuer."""
    own = CachedTokens(TokenTable(client("dynamodb", config=SHORT_CONFIG), environment.token_table))
    if environment.oidc_issuer is None:
        return own
    # Imported here because they add 0.2 s to a cold start, and only deployments with an issuer need them.
    from slackwater.outbound.guard import GuardedTransport, Outbound  # noqa: PLC0415
    from slackwater.receiver.push.jwt_tokens import IssuerKeys, JwtTokens, TokensByFormat  # noqa: PLC0415

    def log_refusal(reason: str) -> None:
        logger.info("JSON Web Token refused", extra={"reason": reason})

    outbound = Outbound.of(filter(None, environment.outbound_allow.split(",")))
    keys = IssuerKeys(environment.oidc_issuer, transport=GuardedTransport(outbound))
    return TokensByFormat(own=own, issued=JwtTokens(keys, audience=environment.oidc_audience, on_refused=log_refusal))


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request of a REST API of API Gateway (payload format 1.0).

    Returns the response that API Gateway sends to the partner. Its header `x-correlation-id` has the partner's id for
    the request, or else the request id of API Gateway; every log line about the batch has the same id. The function
    answers 503 before its own timeout, whatever AWS does. Other errors become responses with status 501 or 503, never
    500: with that status API Gateway reports that it could not call the function.
    """
    headers = read_headers(event)
    correlation_id = headers.get(CORRELATION_HEADER, "")
    if not _CORRELATION_ID.fullmatch(correlation_id):
        correlation_id = str(event["requestContext"]["requestId"])
    logger.set_correlation_id(correlation_id)
    source = event["pathParameters"]["source"]
    try:
        encoded = event.get("body") or ""
        body = base64.b64decode(encoded) if event.get("isBase64Encoded") else encoded.encode()
        # API Gateway expands a body and keeps the header that says how it was compressed. No JSON begins like gzip.
        if not body.startswith(_GZIP_MAGIC):
            headers.pop("content-encoding", None)
        seconds = context.get_remaining_time_in_millis() / 1000 - RESPONSE_SECONDS
        status, document = _post_within(seconds, source, headers, body, correlation_id)
    except (CloudError, PartnerError):  # `PartnerError`: the issuer of the token does not answer
        logger.exception("batch not confirmed")
        status, document = _TRY_AGAIN
    except Exception:  # an error that the code does not expect would happen again with the same batch
        logger.exception("batch not confirmed: sending it again will not help")
        message = "the receiver failed: keep the batch and send its operators the x-correlation-id of this response"
        status, document = error_response(501, "internal", message)
    count_events(source, document)
    record_counts(source, document)
    # The log has the number of rejected events; their reasons, up to 10,000 of them, are under `sideline/`.
    logged = {**document, "rejected": len(document.get("rejected", ()))}
    logger.info("batch answered", extra={"status": status, **logged})
    answered = {"content-type": "application/json", CORRELATION_HEADER: correlation_id}
    if status == HTTPStatus.UNAUTHORIZED:
        answered["www-authenticate"] = "Bearer"
    return {"statusCode": status, "headers": answered, "body": json.dumps(document, ensure_ascii=False)}


def read_headers(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a request of API Gateway, with names in lower case.

    The values of a header that was sent several times are joined by commas.
    """
    return {name.lower(): ",".join(values) for name, values in (event["multiValueHeaders"] or {}).items()}


def _post_within(
    seconds: float, source: str, headers: Mapping[str, str], body: bytes, correlation_id: str
) -> tuple[int, dict[str, Any]]:
    """Return the status and the document of the response to a batch, with 503 if that takes longer than `seconds`.

    Raises `CloudError` or `PartnerError` when the cloud or the issuer of a token fails.
    """
    work = _worker.submit(lambda: build_api().post(source, headers, body, correlation_id))
    try:
        return work.result(timeout=seconds)
    except TimeoutError:
        work.cancel()  # if it has not begun
        logger.exception("batch not confirmed: no time left")
        return _TRY_AGAIN


def count_events(source: str, document: Mapping[str, Any]) -> None:
    """Put the metrics of a batch's events; a batch that was refused as a whole has none."""
    if "accepted" in document:
        counts = {
            Metric.EVENTS_ACCEPTED: document["accepted"],
            Metric.EVENTS_DUPLICATE: document["duplicates"],
            Metric.EVENTS_REJECTED: len(document["rejected"]),
        }
        put_counts(counts, source=source)


def record_counts(source: str, document: Mapping[str, Any]) -> None:
    """Add a batch's events to the counts of its source. An error is only logged: the batch itself is stored."""
    if "accepted" not in document:
        return
    rejected = len(document["rejected"])
    events = document["accepted"] + document["duplicates"] + rejected
    try:
        build_event_counts().add(source, EventCount(events, rejected), at=datetime.now(UTC))
    except SlackwaterError as error:
        logger.warning("the events of the batch were not counted", extra={"reason": str(error)})
