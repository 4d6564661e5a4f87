from __future__ import annotations

import json
import pickle

import pytest
from botocore.exceptions import ClientError
from pydantic import SecretStr, ValidationError

from slackwater.aws.secrets import CloudSecrets
from slackwater.errors import AccessDenied, DefinitionError, ObjectMissing
from slackwater.outbound.credentials import Credentials

pytestmark = pytest.mark.unit

LOGIN = {"username": "acme", "password": "hunter2"}
REFERENCES = ["secretsmanager:acme/sftp", "ssm:/acme/sftp"]


class FakeStores:
    """Secrets Manager and Parameter Store, with values by name."""

    def __init__(self, **values: object) -> None:
        self.values = {name.replace("__", "/"): value for name, value in values.items()}
        self.reads = 0

    def connect(self, service: str) -> FakeStores:
        self.missing = {"ssm": "ParameterNotFound", "secretsmanager": "ResourceNotFoundException"}[service]
        return self

    def get_secret_value(self, *, SecretId):  # noqa: N803
        value = self._find(SecretId)
        return {"SecretBinary": value} if isinstance(value, bytes) else {"SecretString": value}

    def get_parameter(self, *, Name, WithDecryption):  # noqa: N803
        assert WithDecryption
        return {"Parameter": {"Type": "SecureString", "Value": self._find(Name.removeprefix("/"))}}

    def _find(self, name: str) -> object:
        self.reads += 1
        if name not in self.values:
            raise ClientError({"Error": {"Code": self.missing, "Message": "no"}}, "Get")
        if isinstance(self.values[name], Exception):
            raise self.values[name]
        return self.values[name]


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("content", [LOGIN, {"token": "t"}, {"username": "u", "private_key": "k\nl"}], ids=sorted)
def test_the_stored_credentials_are_read(reference, content):
    credentials = CloudSecrets(connect=FakeStores(acme__sftp=json.dumps(content)).connect).read(reference)
    shown = credentials.model_dump(exclude_none=True)
    assert {
        name: value if isinstance(value, str) else value.get_secret_value() for name, value in shown.items()
    } == content


def test_a_name_may_be_an_arn():
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:acme-AbCdEf"
    stores = FakeStores()
    stores.values[arn] = json.dumps(LOGIN)
    assert CloudSecrets(connect=stores.connect).read(f"secretsmanager:{arn}").username == "acme"


@pytest.mark.parametrize("reference", REFERENCES)
def test_changed_credentials_are_read_after_five_minutes(reference):
    stores, now = FakeStores(acme__sftp=json.dumps(LOGIN)), [1000.0]
    secrets = CloudSecrets(connect=stores.connect, clock=lambda: now[0])
    secrets.read(reference)
    stores.values["acme/sftp"] = json.dumps({**LOGIN, "username": "new"})
    now[0] += 299
    assert (secrets.read(reference).username, stores.reads) == ("acme", 1)
    now[0] += 1
    assert (secrets.read(reference).username, stores.reads) == ("new", 2)


@pytest.mark.parametrize("reference", REFERENCES)
def test_missing_credentials_are_reported_with_the_remedy(reference):
    with pytest.raises(
        ObjectMissing, match=f"there is no {reference} in this account and region: create it, with a JSON"
    ):
        CloudSecrets(connect=FakeStores().connect).read(reference)


@pytest.mark.parametrize("reference", REFERENCES)
def test_denied_access_is_reported(reference):
    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Get")
    with pytest.raises(AccessDenied, match=f"could not read the credentials in {reference}: AccessDenied"):
        CloudSecrets(connect=FakeStores(acme__sftp=denied).connect).read(reference)


@pytest.mark.parametrize(
    "content",
    [
        "hunter2",
        '"hunter2"',
        '{"password": "hunter2"}',
        '{"username": "hunter2"}',
        '{"username": "acme", "password": ["hunter2"]}',
        '{"hunter2": "hunter2", "token": "hunter2"}',
        '{"token": "hunter2"',
        "",
    ],
)
@pytest.mark.parametrize("reference", REFERENCES)
def test_invalid_credentials_are_not_shown(reference, content):
    with pytest.raises(
        DefinitionError, match=f"^{reference} holds no valid credentials: .*is expected there$"
    ) as failed:
        CloudSecrets(connect=FakeStores(acme__sftp=content).connect).read(reference)
    assert "hunter2" not in str(failed.value)
    assert (failed.value.__cause__, failed.value.__context__) == (None, None)


@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", " {}\t", "\n\n{}"])
@pytest.mark.parametrize("content", [LOGIN, {"token": "hunter2"}], ids=sorted)
def test_whitespace_around_credentials_is_removed(content, around):
    stored = json.dumps({name: around.format(value) for name, value in content.items()})
    credentials = CloudSecrets(connect=FakeStores(acme__sftp=stored).connect).read("ssm:acme/sftp")
    assert credentials == Credentials.model_validate(content)


def test_whitespace_in_a_private_key_is_kept():
    stored = json.dumps({"username": "u", "private_key": " k\r\nl\n\n"})
    credentials = CloudSecrets(connect=FakeStores(acme__sftp=stored).connect).read("ssm:acme/sftp")
    assert credentials.private_key.get_secret_value() == " k\r\nl\n\n"


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        *(
            ({"token": token}, "a `token` of visible ASCII characters, without blanks in it,")
            for token in ("hunter2ö", "hunter2 b", "hunter2\rb", "hunter2\nx: y", "hunter2\0", "hunter2\x7f", " \n", "")
        ),
        *(
            ({**LOGIN, name: value}, "a `username` and a `password` without control characters")
            for name in LOGIN
            for value in ("hunter2\rb", "hunter2\nb", "hunter2\0", "hunter2\x7f")
        ),
    ],
    ids=repr,
)
def test_credentials_that_cannot_be_sent_are_not_shown(reference, content, expected):
    with pytest.raises(DefinitionError) as failed:
        CloudSecrets(connect=FakeStores(acme__sftp=json.dumps(content)).connect).read(reference)
    assert str(failed.value) == f"{reference} holds no valid credentials: {expected} is expected there"
    assert (failed.value.__cause__, failed.value.__context__) == (None, None)


@pytest.mark.parametrize(
    "content", [{"token": "hunter2 ö"}, {"username": "hunter2\rb", "password": "x"}, {"username": "hunter2"}]
)
def test_a_validation_error_does_not_show_credentials(content):
    with pytest.raises(ValidationError) as failed:
        Credentials.model_validate(content)
    assert "hunter2" not in f"{failed.value} {failed.value!r}"


def test_binary_secrets_are_refused():
    with pytest.raises(DefinitionError, match="holds no valid credentials"):
        CloudSecrets(connect=FakeStores(acme__sftp=b"{}").connect).read("secretsmanager:acme/sftp")


def test_credentials_are_masked_in_every_representation():
    credentials = CloudSecrets(connect=FakeStores(acme__sftp=json.dumps(LOGIN)).connect).read("ssm:acme/sftp")
    assert "hunter2" not in f"{credentials} {credentials!r} {credentials.model_dump_json()}"


def test_cached_credentials_are_not_sent_to_sparks_executors() -> None:
    secrets = CloudSecrets()
    secrets._cache["ssm:x"] = (1e12, Credentials(token=SecretStr("a-secret-token")))
    sent = pickle.dumps(secrets)
    assert b"a-secret-token" not in sent
    assert pickle.loads(sent)._cache == {}  # noqa: S301 - of this test
