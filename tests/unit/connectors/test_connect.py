from __future__ import annotations

import subprocess
import sys

import pytest

from slackwater.aws import connect
from slackwater.aws.connect import connector_of
from slackwater.aws.s3_connector import S3Connector
from slackwater.errors import DefinitionError
from slackwater.outbound.credentials import Credentials
from slackwater.receiver.connectors.http_connector import HttpConnector
from slackwater.receiver.connectors.sftp_connector import SftpConnector
from tests.fakes_receiver import a_source

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHk2sL++5mySabi+ODUdHJUi/kpIlwq+KFPdtRylkMtc"
pytestmark = pytest.mark.unit

ROLE = "arn:aws:iam::123456789012:role/exports"
ALLOWED = "127.0.0.1"


class Secrets:
    """Records the references that were read."""

    def __init__(self) -> None:
        self.read_references: list[str] = []

    def read(self, reference: str) -> Credentials:
        self.read_references.append(reference)
        return Credentials(username="acme", password="hunter2")


class Client:
    """An AWS client without operations."""

    def __init__(self, service: str, session: object) -> None:
        self.service, self.session, self.closed = service, session, False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clients(monkeypatch):
    created: list[Client] = []

    def client(service, *, session=None):
        created.append(Client(service, session))
        return created[-1]

    monkeypatch.setattr(connect, "client", client)
    return created


def test_importing_the_connectors_changes_no_logger():
    code = """
import logging
from slackwater.aws import connect
from slackwater.receiver.connectors import http_connector, sftp_connector
loggers = [logging.getLogger(name) for name in ("", "httpx", "httpcore", "paramiko", "boto3", "botocore")]
levels = [logger.level for logger in loggers]
assert levels == [logging.WARNING, 0, 0, 0, 0, 0], levels
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def opened(secrets: Secrets, **pull: object):
    source = a_source(pull={"files": "{date}", **pull})
    return connector_of(source, allow=ALLOWED, secrets=secrets, max_file_bytes=9)


@pytest.mark.parametrize(
    ("pull", "connector"),
    [
        ({"url": "http://files.example/x"}, HttpConnector),
        ({"url": "https://files.example/x", "credentials": "ssm:acme"}, HttpConnector),
        (
            {
                "url": "sftp://files.example/x",
                "credentials": "ssm:acme",
                "host_key": HOST_KEY,
            },
            SftpConnector,
        ),
        ({"url": "s3://bucket/x"}, S3Connector),
        ({"url": "s3://bucket/x", "role": ROLE}, S3Connector),
    ],
    ids=["http", "https", "sftp", "s3", "s3 by role"],
)
def test_the_scheme_selects_the_connector(clients, pull, connector):
    secrets = Secrets()
    with opened(secrets, **pull) as partner:
        assert type(partner) is connector
    assert secrets.read_references == [pull[name] for name in ["credentials"] if name in pull]


def test_connections_are_closed_also_after_an_error(clients, monkeypatch):
    closed = []
    for connector in (HttpConnector, SftpConnector):
        monkeypatch.setattr(connector, "close", lambda self: closed.append(type(self)))
    pulls = [
        {"url": "http://files.example/x"},
        {
            "url": "sftp://files.example/x",
            "credentials": "ssm:acme",
            "host_key": HOST_KEY,
        },
        {"url": "s3://bucket/x", "role": ROLE},
    ]
    for pull in pulls:
        with pytest.raises(RuntimeError), opened(Secrets(), **pull):
            raise RuntimeError
    assert closed == [HttpConnector, SftpConnector]
    assert [client.closed for client in clients] == [True, True]


def test_a_role_is_assumed_with_the_name_of_the_source(clients):
    with opened(Secrets(), url="s3://bucket/x", role=ROLE):
        sts, s3 = clients
    requests = []

    def assume_role(**request):
        requests.append(request)
        raise RuntimeError

    sts.assume_role = assume_role
    with pytest.raises(RuntimeError):
        s3.session.get_credentials().get_frozen_credentials()
    assert (sts.service, s3.service) == ("sts", "s3")
    assert requests == [{"RoleArn": ROLE, "RoleSessionName": "slackwater-things"}]


def test_without_a_role_the_account_s_own_credentials_are_used(clients):
    with opened(Secrets(), url="s3://bucket/x"):
        assert [(client.service, client.session) for client in clients] == [("s3", None)]


def test_a_source_without_pull_settings_has_no_partner(clients):
    with (
        pytest.raises(DefinitionError, match="its data is pushed"),
        connector_of(a_source(pull=None), allow=ALLOWED, secrets=Secrets(), max_file_bytes=9),
    ):
        pass
