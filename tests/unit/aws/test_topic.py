import json
import socket
import ssl
import threading
from contextlib import contextmanager

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)
from hypothesis import given
from hypothesis import strategies as st

from slackwater.aws.clients import client
from slackwater.aws.topic import MAX_MESSAGE, MAX_SUBJECT, SnsTopic, connect, cut, message_by_protocol, subject_line
from slackwater.errors import AccessDenied, CloudError, DataError, ResponseLost, Throttled
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

ARN = "arn:aws:sns:us-east-1:000000000000:slackwater-changes"
OK = "<PublishResponse><PublishResult><MessageId>id-1</MessageId></PublishResult></PublishResponse>"


class Wire:
    """Records the requests to SNS and returns one response to each."""

    def __init__(self, body, status=200):
        self.body, self.status, self.requests = body, status, []

    def __call__(self, request, **_):
        self.requests.append(request)
        if isinstance(self.body, Exception):
            raise self.body
        response = AWSResponse(request.url, self.status, {}, None)
        response._content = self.body.encode()
        return response


@pytest.fixture(autouse=True)
def _credentials(monkeypatch):
    values = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


def topic(wire, create_client=connect):
    def connect_to_wire():
        sns = create_client()
        sns.meta.events.register("before-send.sns.Publish", wire)
        return sns

    return SnsTopic(ARN, connect=connect_to_wire)


def tls_error(reason):
    """The error that botocore raises when a TLS connection breaks: the reason is two causes deep."""
    error, between = SSLError(endpoint_url="https://x", error=reason), Exception(reason)
    error.__context__, between.__context__ = between, reason
    return error


def publish(wire, **more):
    message = {
        "subject": "s",
        "body": "b",
        "document": "{}",
        "attributes": {"pipeline": "p", "date": "2013-03-10"},
    } | more
    return topic(wire).publish(**message)


def refused(code, status):
    return Wire(f"<ErrorResponse><Error><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>", status)


def test_a_message_is_sent_with_the_attributes_by_which_subscriptions_filter():
    wire = Wire(OK)
    assert publish(wire, subject="daily 1\n2", body="één\nline") == "id-1"
    (request,) = wire.requests
    sent = request.body.decode() if isinstance(request.body, bytes) else request.body
    assert "Subject=daily+1+2" in sent
    assert "MessageAttributes.entry.1.Name=pipeline" in sent
    assert "MessageAttributes.entry.2.Value.StringValue=2013-03-10" in sent


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (refused("Throttled", 429), Throttled),
        (refused("Throttling", 400), Throttled),
        (refused("AuthorizationError", 403), AccessDenied),
        (refused("InvalidParameter", 400), CloudError),
        (Wire(EndpointConnectionError(endpoint_url="http://x")), CloudError),
        (Wire(ConnectTimeoutError(endpoint_url="http://x")), CloudError),
        (Wire(ProxyConnectionError(proxy_url="http://x")), CloudError),
        (Wire(NoCredentialsError()), AccessDenied),
        (Wire(tls_error(ssl.SSLCertVerificationError("self-signed certificate"))), CloudError),
    ],
)
def test_after_a_refusal_the_message_was_not_sent(wire, error):
    with pytest.raises(error) as raised:
        publish(wire)
    assert not isinstance(raised.value, ResponseLost)
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    "wire",
    [
        refused("InternalError", 500),
        refused("ServiceUnavailable", 503),
        Wire(ReadTimeoutError(endpoint_url="http://x")),
        Wire(ConnectionClosedError(endpoint_url="http://x")),
        Wire(tls_error(ssl.SSLError("wrong version number"))),
        Wire("not an answer at all"),
    ],
)
def test_a_lost_response_has_its_own_error_and_the_message_is_not_sent_again(wire):
    with pytest.raises(ResponseLost, match="no answer to publishing"):
        publish(wire)
    assert len(wire.requests) == 1


@contextmanager
def server(monkeypatch, scheme, serve):
    """Connect SNS clients to a server that passes one connection to `serve`."""

    def accept():
        connection, _ = listening.accept()
        with connection:
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://127.0.0.1:{listening.getsockname()[1]}")
        thread = threading.Thread(target=accept)
        thread.start()
        yield
        thread.join()


def test_a_connection_that_breaks_after_the_request_is_a_lost_response(monkeypatch):
    requests = []

    def break_off(connection):
        request = b""
        while b"2013-03-10" not in request:  # the last attribute's value ends the body
            request += connection.recv(65_536)
        requests.append(request)

    with server(monkeypatch, "http", break_off), pytest.raises(ResponseLost, match="no answer to publishing"):
        SnsTopic(ARN).publish(subject="s", body="b", document="{}", attributes={"date": "2013-03-10"})
    assert [request.count(b"Action=Publish") for request in requests] == [1]


def test_a_tls_connection_that_breaks_is_a_lost_response(monkeypatch):
    def garble(connection):
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 500 no\r\n\r\n")

    with server(monkeypatch, "https", garble), pytest.raises(ResponseLost, match="SSL"):
        SnsTopic(ARN).publish(subject="s", body="b", document="{}", attributes={})


def test_other_clients_would_send_the_message_again(monkeypatch):
    """Why the topic has a client of its own."""
    record_pauses(monkeypatch, "botocore.endpoint")
    wire = refused("InternalError", 500)
    with pytest.raises(ResponseLost):
        topic(wire, create_client=lambda: client("sns")).publish(subject="s", body="b", document="{}", attributes={})
    assert len(wire.requests) > 1


def test_each_message_uses_its_own_client():
    created = []
    sns_topic = SnsTopic(ARN, connect=lambda: created.append(None) or connect())
    for _ in range(2):
        with pytest.raises(CloudError):
            sns_topic.publish(subject="s", body="b", document="{}", attributes={"empty": ""})
    assert len(created) == 2


@given(string=st.text(max_size=300))
def test_a_subject_is_one_short_line_of_ascii(string):
    subject = subject_line(string)
    assert subject.isascii()
    assert subject.isprintable()
    assert len(subject) <= MAX_SUBJECT


def test_a_subject_of_up_to_99_characters_is_unchanged():
    assert subject_line("daily_delays 2013-03-10 changed: flights 831 -> 883 (+6.3 %)").endswith("(+6.3 %)")
    assert subject_line("x" * 120) == "x" * 96 + "..."


def test_programs_receive_the_document_and_people_the_text():
    message = json.loads(message_by_protocol('één\n"line"', '{"a": 1}'))
    assert message.pop("default") == 'één\n"line"'
    assert message == dict.fromkeys(("sqs", "lambda", "http", "https", "firehose"), '{"a": 1}')


@pytest.mark.parametrize("line", ["x" * 60, "\n", '"' * 80, "\x01" * 40, "東" * 20])
def test_the_whole_message_fits_whatever_json_escapes(line):
    document = json.dumps({"a": '"' * 10_000})
    message = message_by_protocol("\n".join([line] * 20_000), document)
    assert len(message.encode()) <= MAX_MESSAGE
    parts = json.loads(message)
    assert parts["sqs"] == document
    assert parts["default"].endswith("(The message was too long and has been cut here.)")


def test_a_document_that_leaves_no_room_is_refused():
    with pytest.raises(DataError, match="60,000 characters"):
        message_by_protocol("b", "x" * 60_000)


def test_a_body_that_is_too_long_is_cut_at_a_line_with_a_remark():
    line = "å" * 50
    body = cut("\n".join([line] * 5000))
    assert len(body.encode()) <= MAX_MESSAGE
    *lines, blank, remark = body.split("\n")
    assert set(lines) == {line}
    assert (blank, remark) == ("", "(The message was too long and has been cut here.)")
    assert cut(line) == line
    assert len(cut("å" * MAX_MESSAGE).encode()) <= MAX_MESSAGE
