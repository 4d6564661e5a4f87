"""`slackwater token`, over the local cloud's own DynamoDB code."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from slackwater.client.push import OPERATOR, TokenFile
from tests.example_project import PROJECT, example_project
from tests.fakes_cli import a_client, use_client
from tests.fakes_dynamodb import LocalDynamoDB

pytestmark = pytest.mark.unit

NOW = datetime(2013, 3, 8, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def dynamodb():
    return LocalDynamoDB()


@pytest.fixture
def client(dynamodb, monkeypatch, tmp_path):
    """A client whose token table is empty."""
    with dynamodb.table("tokens", "token_hash") as name:
        deployment = SimpleNamespace(token_table=name, api_url="http://api")
        client = a_client(
            example_project(), deployment=deployment, root=tmp_path, clients={"dynamodb": dynamodb.client}
        )
        use_client(monkeypatch, client)
        yield client


@pytest.fixture
def slackwater(client, printed_by):
    """Run a `token` command, and return what it printed: lines, or its document."""

    def slackwater(*arguments, code=0, error=False):
        as_json = [] if error or arguments[-1] == "--text" else ["--json"]
        options = [argument for argument in arguments if argument != "--text"]
        printed = printed_by("token", *options, *as_json, *PROJECT, code=code)
        if error:
            assert printed.out == ""
            return printed.err
        return json.loads(printed.out) if as_json else printed

    return slackwater


def put(dynamodb, token_hash, **more):
    item = {"partner": {"S": "acme"}, "sources": {"SS": ["weather"]}, "created_at": {"S": NOW.isoformat()}, **more}
    dynamodb.client.put_item(TableName="tokens", Item={"token_hash": {"S": token_hash}, **item})


class TestCreate:
    def test_json_output_describes_the_new_token(self, slackwater, client):
        created = slackwater("create", "acme", "--source", "weather", "--source", "weather")
        token = client.tokens.find(created["token"])
        assert created == {
            "id": token.id,
            "partner": "acme",
            "sources": ["weather"],
            "created_at": token.created_at.isoformat(),
            "expires_at": None,
            "state": "valid",
            "token": created["token"],
        }

    def test_the_token_alone_is_on_standard_output(self, slackwater, client):
        printed = slackwater("create", "acme", "--source", "*", "--text")
        token = client.tokens.find(printed.out.strip())
        target, text = printed.err.splitlines()
        assert target == "target: a test"
        assert text == f"acme may push to * with this token. Its id is {token.id}; it is printed once:"

    def test_days(self, slackwater, client):
        created = slackwater("create", "acme", "--source", "weather", "--days", "90")
        token = client.tokens.find(created["token"])
        assert abs(token.expires_at - token.created_at - timedelta(days=90)) < timedelta(minutes=1)
        printed = slackwater("create", "acme", "--source", "weather", "--days", "1", "--text")
        assert re.search(r"acme may push to weather until \d{4}-\d\d-\d\d \d\d:\d\d UTC with", printed.err)

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["a b", "--source", "weather"], "partner: 'a b' is not a valid name"),
            (["acme", "--source", "nothing"], "no source 'nothing'"),
            (["acme", "--source", "flights"], "--source: 'flights' is not pushed: its definition has no `push`"),
            (["acme", "--source", "weather", "--days", "0"], "--days"),
            (["acme", "--source", "weather", "--days", "3651"], "--days"),
            (["acme"], "Missing option '--source'"),
        ],
    )
    def test_wrong_input(self, slackwater, client, arguments, expected):
        assert expected in slackwater("create", *arguments, code=2, error=True)
        assert client.tokens.all() == []


class TestList:
    def test_tokens_are_listed_by_partner_and_age(self, slackwater, dynamodb):
        put(dynamodb, "a" * 64, created_at={"S": "2013-03-09T08:00:00+00:00"}, sources={"SS": ["weather", "flights"]})
        put(dynamodb, "b" * 64, expires_at={"S": "2013-06-08T14:30:00+02:00"})
        put(dynamodb, "c" * 64, revoked={"BOOL": True}, partner={"S": "Zeta"})
        printed = slackwater("list", "--text")
        assert printed.out == (
            "id            partner  sources           created (UTC)     expires (UTC)     state\n"
            "cccccccccccc  Zeta     weather           2013-03-08 12:00                    revoked\n"
            "bbbbbbbbbbbb  acme     weather           2013-03-08 12:00  2013-06-08 12:30  expired\n"
            "aaaaaaaaaaaa  acme     flights, weather  2013-03-09 08:00                    valid\n"
        )
        tokens = slackwater("list", "acme")["tokens"]
        assert [token["id"] for token in tokens] == ["b" * 12, "a" * 12]
        assert tokens[1] == {
            "id": "a" * 12,
            "partner": "acme",
            "sources": ["flights", "weather"],
            "created_at": "2013-03-09T08:00:00+00:00",
            "expires_at": None,
            "state": "valid",
        }

    def test_a_token_and_its_hash_are_not_shown(self, slackwater):
        created = slackwater("create", "acme", "--source", "weather")
        for shown in (slackwater("list", "--text").out, json.dumps(slackwater("list"))):
            assert created["id"] in shown
            assert created["token"] not in shown
            assert not re.search("[0-9a-f]{13}", shown)

    def test_an_empty_list_names_the_create_command(self, slackwater):
        assert slackwater("list") == {"tokens": []}
        assert slackwater("list", "--text").out == ("no tokens yet (slackwater token create PARTNER --source SOURCE)\n")
        assert (
            slackwater("list", "acme", "--text").out == "no tokens yet (slackwater token create acme --source SOURCE)\n"
        )


class TestRevoke:
    @pytest.mark.parametrize("digits", [6, 12, 64])
    def test_a_token_is_revoked_by_its_id_or_the_first_digits_of_it(self, slackwater, client, dynamodb, digits):
        put(dynamodb, "0123456789abcdef" * 4)
        put(dynamodb, "0123400000000000" * 4)
        (revoked,) = slackwater("revoke", ("0123456789ABCDEF" * 4)[:digits])["revoked"]
        assert (revoked["id"], revoked["partner"], revoked["state"]) == ("0123456789ab", "acme", "revoked")
        assert [token.revoked for token in client.tokens.all()] == [False, True]

    def test_as_text_and_twice(self, slackwater, dynamodb):
        put(dynamodb, "a" * 64)
        for _ in range(2):
            assert slackwater("revoke", "aaaaaa", "--text").out == "revoked aaaaaaaaaaaa of acme\n"

    def test_all_valid_tokens_of_a_partner_are_revoked(self, slackwater, client, dynamodb):
        other = slackwater("create", "globex", "--source", "weather")["token"]
        ids = [slackwater("create", "acme", "--source", "weather")["id"] for _ in range(2)]
        put(dynamodb, "a" * 64, expires_at={"S": NOW.isoformat()})
        revoked = slackwater("revoke", "--all", "acme")["revoked"]
        assert [(token["id"], token["state"]) for token in revoked] == [(id_, "revoked") for id_ in ids]
        assert not client.tokens.find(other).revoked
        assert slackwater("revoke", "--all", "acme") == {"revoked": []}
        assert slackwater("revoke", "--all", "acme", "--text").out == "acme has no valid token\n"

    def test_tokens_of_a_partner_whose_name_is_no_longer_valid_are_revoked(self, slackwater, dynamodb):
        put(dynamodb, "a" * 64, partner={"S": "an old partner"})
        assert len(slackwater("revoke", "--all", "an old partner")["revoked"]) == 1

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ([], "ID or --all PARTNER: give one of them"),
            (["abcdef", "--all", "acme"], "ID or --all PARTNER: give one of them"),
            (["abcde"], "6 digits or more of an id are expected"),
            (["a" * 65], "6 digits or more of an id are expected"),
            (["acme"], "slackwater token revoke --all PARTNER"),
            (["facade"], "no token facade (slackwater token list shows the ids)"),
            (["0123456"], "0123456 is the beginning of the ids 0123456789ab and 012345678fff: give more digits"),
            (["--all", "nobody"], "no partner 'nobody' has a token"),
        ],
    )
    def test_wrong_input(self, slackwater, client, dynamodb, arguments, expected):
        put(dynamodb, "0123456789abcdef" * 4)
        put(dynamodb, "012345678fffffff" * 4)
        assert expected in slackwater("revoke", *arguments, code=2, error=True)
        assert not any(token.revoked for token in client.tokens.all())

    def test_a_token_passed_instead_of_its_id_is_not_printed(self, slackwater):
        token = slackwater("create", "acme", "--source", "weather")["token"]
        assert token not in slackwater("revoke", token.lstrip("-"), code=2, error=True)


class TestOperator:
    def test_a_new_checkout_replaces_the_oldest_token_of_the_operator(self, client, tmp_path):
        plain_tokens = []
        for checkout in ("one", "two", "three"):
            token_file = TokenFile(tmp_path / checkout / "token")
            plain_tokens.append(token_file.get_or_create("http://api", client.pusher.create_operator_token))
            assert token_file.token("http://api") == plain_tokens[-1]
        assert [client.tokens.find(plain).revoked for plain in plain_tokens] == [True, False, False]
        token = client.tokens.find(plain_tokens[2])
        assert (token.partner, token.sources) == (OPERATOR, {"weather"})
