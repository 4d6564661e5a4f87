"""The SNS topic that notifies people."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from slackwater.aws.clients import CONFIG
from slackwater.aws.failures import translated
from slackwater.errors import DataError, ResponseLost

# Characters. SNS requires fewer than 100, all of them ASCII and on one line.
MAX_SUBJECT = 99
# Bytes. SNS accepts 256 KB, attributes included.
MAX_MESSAGE = 250_000
# Types of subscribers that are programs.
_PROGRAMS = ("sqs", "lambda", "http", "https", "firehose")
_REMARK = "\n\n(The message was too long and has been cut here.)"
# One attempt. The function runs for up to a minute, so after 15 seconds it has time to record the lost answer.
_ONCE = CONFIG.merge(Config(retries={"total_max_attempts": 1}, read_timeout=15))
_SERVER_FAILED = 500
# These errors mean that no connection or no request was made. After any other error without an answer, the message may
# have been published: even TLS can break after the whole request was sent.
_NOT_SENT = (
    exceptions.EndpointConnectionError,
    exceptions.ConnectTimeoutError,
    exceptions.ProxyConnectionError,
    exceptions.NoCredentialsError,
    exceptions.ParamValidationError,
)


def connect() -> Any:
    """Return an SNS client without retries: a retry after a lost answer would notify people twice."""
    return boto3.session.Session().client("sns", config=_ONCE)


class SnsTopic:
    """`slackwater.late.changes.outbox.NotificationTopic` over SNS.

    Each message gets a new connection. The server may have closed an idle one, which shows only when it is used: the
    error would look like a lost answer.
    """

    def __init__(self, arn: str, *, connect: Callable[[], Any] = connect) -> None:
        self._arn = arn
        self._connect = connect

    def publish(self, *, subject: str, body: str, document: str, attributes: Mapping[str, str]) -> str:
        """Send the message once, and return its id. People receive the body, programs the JSON document.

        Raises `ResponseLost` when the message may or may not have been sent. After another `SlackwaterError`, it was
        not sent.
        """
        with translated(f"publish to {self._arn}"):
            try:
                response = self._connect().publish(
                    TopicArn=self._arn,
                    Subject=subject_line(subject),
                    Message=message_by_protocol(body, document),
                    MessageStructure="json",
                    MessageAttributes={
                        name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
                    },
                )
            except (ClientError, BotoCoreError, ResponseParserError) as error:
                if _may_be_published(error):
                    raise ResponseLost(f"no answer to publishing to {self._arn}: {error}") from error
                raise
        return str(response["MessageId"])


def subject_line(subject: str) -> str:
    """Return the subject as SNS accepts it: one line of ASCII, cut to `MAX_SUBJECT` characters."""
    ascii_only = subject.encode("ascii", "replace").decode()
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in ascii_only).split())
    return line if len(line) <= MAX_SUBJECT else f"{line[: MAX_SUBJECT - 3]}..."


def message_by_protocol(body: str, document: str) -> str:
    """Return the message as `MessageStructure=json` expects it, in at most `MAX_MESSAGE` bytes.

    A body that is too long is cut. Raises `DataError` if the document leaves no room for a body.
    """
    limit = MAX_MESSAGE

    def encoded(text: str) -> str:
        return json.dumps({"default": text, **dict.fromkeys(_PROGRAMS, document)}, ensure_ascii=False)

    if len(encoded(_REMARK).encode()) > MAX_MESSAGE:
        raise DataError(f"the document of the message has {len(document):,} characters, too many for SNS")
    # JSON escapes line ends and quotes, so the message may have more bytes than its parts.
    while len((message := encoded(cut(body, limit))).encode()) > MAX_MESSAGE:
        limit = max(limit * 9 // 10, len(_REMARK))
    return message


def cut(body: str, limit: int = MAX_MESSAGE) -> str:
    """Return the body in at most `limit` bytes: a body that is too long ends after a whole line, with a remark."""
    encoded = body.encode()
    if len(encoded) <= limit:
        return body
    kept = encoded[: limit - len(_REMARK)].decode(errors="ignore")
    return f"{kept.rpartition(chr(10))[0] or kept}{_REMARK}"


def _may_be_published(error: Exception) -> bool:
    """Return whether SNS may have published the message although the call raised `error`."""
    if isinstance(error, ClientError):
        # A 5xx may come from a server that has published the message and failed afterwards; a 4xx is a refusal.
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", _SERVER_FAILED)) >= _SERVER_FAILED
    if isinstance(error, exceptions.SSLError):
        # A client sends nothing to a server whose certificate it refuses; botocore wraps the refusal several times.
        cause: BaseException | None = error
        while cause and not isinstance(cause, ssl.SSLCertVerificationError):
            cause = cause.__cause__ or cause.__context__
        return cause is None
    return not isinstance(error, _NOT_SENT)
