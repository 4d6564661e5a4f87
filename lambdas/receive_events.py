"""Lambda function behind the API: receive a pushed batch of events, a report of how many were sent, or a verdict."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from slackwater.aws.clients import BRIEF_CONFIG, SHORT_CONFIG
from slackwater.aws.emf import put_counts
from slackwater.aws.function import best_effort
from slackwater.aws.function_resources import function_resources
from slackwater.errors import CloudError, PartnerError
from slackwater.metrics import Metric
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.push.request import error_response

logger = Logger()
CORRELATION_HEADER = "x-correlation-id"
# Printable ASCII only: the id goes into an HTTP header, log lines and queue messages, and a control character such as a
# line feed could forge a header or a log line. A request with any other id gets the request id of API Gateway.
_CORRELATION_ID = re.compile(r"[ -~]{1,200}")
_GZIP_MAGIC = b"\x1f\x8b"
RESPONSE_SECONDS = 1.0
"""Time before the function's timeout that is kept for the response."""
_Answer = tuple[int, dict[str, Any]]
_TRY_AGAIN = error_response(503, "try_again", "the body could not be stored in full: send the same body again")
# One thread: a request that has no time left leaves its batch in this thread, and the next request waits for the end of
# that work instead of holding a second batch in memory. The partner may send the batch again in the meantime.
_worker = ThreadPoolExecutor(max_workers=1)


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
        status, document = _answer_within(seconds, lambda: _post(event, headers, body, correlation_id))
    except (CloudError, PartnerError):  # `PartnerError`: the issuer of the token does not answer
        logger.exception("batch not confirmed")
        status, document = _TRY_AGAIN
    except Exception:  # an error that the code does not expect would happen again with the same batch
        logger.exception("batch not confirmed: sending it again will not help")
        message = "the receiver failed: keep the batch and send its operators the x-correlation-id of this response"
        status, document = error_response(501, "internal", message)
    count_events(source, document)
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


def _post(event: dict[str, Any], headers: Mapping[str, str], body: bytes, correlation_id: str) -> _Answer:
    """Return the status and the document of the response to a batch of events, a report, or a verdict."""
    source, api = event["pathParameters"]["source"], function_resources(SHORT_CONFIG).events_api
    if event["resource"].endswith("/counts"):
        return api.post_counts(source, headers, body)
    if event["resource"].endswith("/verdicts"):
        return api.post_verdict(source, headers, body)
    return api.post(source, headers, body, correlation_id)


def _answer_within(seconds: float, post: Callable[[], _Answer]) -> _Answer:
    """Return the result of `post`, or the answer with status 503 if that takes longer than `seconds`.

    Raises `CloudError` or `PartnerError` when the cloud or the issuer of a token fails.
    """
    work = _worker.submit(post)
    try:
        return work.result(timeout=seconds)
    except TimeoutError:
        work.cancel()  # if it has not begun
        logger.exception("batch not confirmed: no time left")
        return _TRY_AGAIN


def count_events(source: str, document: Mapping[str, Any]) -> None:
    """Put the metric of a batch's duplicates, and add its events to the counts of its source.

    `Receiver` has put the metrics of accepted and rejected events where it has written them. A batch that was refused
    as a whole has none. An error is only logged: the batch itself is stored.
    """
    if "accepted" not in document:
        return
    accepted, duplicates, rejected = document["accepted"], document["duplicates"], len(document["rejected"])
    put_counts({Metric.EVENTS_DUPLICATE: duplicates}, source=source)
    count = EventCount(accepted + duplicates + rejected, rejected)
    with best_effort("the events of the batch were not counted"):
        function_resources(BRIEF_CONFIG).event_counts.add(source, count, at=datetime.now(UTC))
