"""Tokens of partners: what is stored, how many a partner may have, and concurrent changes."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError
from botocore.stub import Stubber

from slackwater.aws.dynamodb.tokens import TokenTable
from slackwater.errors import AccessDenied, CloudError, InputError, Throttled
from slackwater.receiver.push.tokens import CachedTokens, Token, check_partner_name, new_token
from tests.fakes_dynamodb import LocalDynamoDB

pytestmark = pytest.mark.unit

NOW = datetime(2013, 3, 12, 9, 30, tzinfo=UTC)


@pytest.fixture
def dynamodb(each_dynamodb):
    return each_dynamodb


@pytest.fixture
def table(dynamodb):
    with dynamodb.table("tokens", "token_hash") as name:
        dynamodb.calls.clear()
        yield TokenTable(dynamodb.client, name)


def sha256(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def ids(table, partner="acme"):
    """Return the ids of the partner's valid tokens, oldest first."""
    return [token.id for token in table.all() if token.partner == partner and token.valid(datetime.now(UTC))]


def put_old_item(dynamodb, plain, *, at="2013-03-08T12:00:00+00:00", partner="acme", **attributes):
    """Store an item in the format from when a partner could have any number of tokens."""
    item = {
        "token_hash": {"S": sha256(plain)},
        "partner": {"S": partner},
        "sources": {"SS": ["weather"]},
        "created_at": {"S": at},
        "revoked": {"BOOL": False},
        **attributes,
    }
    dynamodb.client.put_item(TableName="tokens", Item=item)


class TestToken:
    def test_the_id_of_a_token_is_the_start_of_its_hash(self):
        new = new_token("acme", ["weather", "weather"], now=NOW)
        assert new.token.token_hash == sha256(new.plain)
        assert new.token.id == sha256(new.plain)[:12]
        assert new.token.sources == {"weather"}
        assert new.plain not in repr(new)

    def test_tokens_are_unique_and_do_not_look_like_json_web_tokens(self):
        plain = {new_token("acme", ["*"], now=NOW).plain for _ in range(100)}
        assert len(plain) == 100
        assert {len(token) for token in plain} == {43}
        assert "." not in "".join(plain)

    @pytest.mark.parametrize(
        ("changes", "state"),
        [
            ({}, "valid"),
            ({"expires_at": NOW + timedelta(microseconds=1)}, "valid"),
            ({"expires_at": NOW}, "expired"),
            ({"expires_at": NOW - timedelta(days=1)}, "expired"),
            ({"revoked": True}, "revoked"),
            ({"revoked": True, "expires_at": NOW}, "revoked"),
        ],
    )
    def test_a_token_is_valid_unless_it_is_revoked_or_expired(self, changes, state):
        token = Token(token_hash="0" * 64, partner="acme", sources=["*"], created_at=NOW, **changes)
        assert token.state(NOW) == state
        assert token.valid(NOW) is (state == "valid")

    def test_a_token_allows_only_its_sources(self):
        token = new_token("acme", ["flights", "weather"], now=NOW).token
        assert [token.allows(name) for name in ("flights", "weather", "other", "*")] == [True, True, False, False]
        assert new_token("acme", ["*"], now=NOW).token.allows("anything")

    @pytest.mark.parametrize("name", ["acme", "Acme-EU.2_x", "7", "a" * 63])
    def test_valid_partner_names_are_accepted(self, name):
        assert check_partner_name(name) == name

    @pytest.mark.parametrize("name", ["", "a" * 64, "-a", ".a", "a b", "a#b", "a\n", "é", "a/b", "*"])
    def test_invalid_partner_names_are_refused(self, name):
        with pytest.raises(InputError, match=r"^partner: .* is not a valid name: use 1 to 63 letters, digits"):
            check_partner_name(name)


class CountingTokens:
    """Tokens in memory that record each lookup."""

    def __init__(self, **grants):
        self.grants = grants
        self.lookups = []

    def find(self, token):
        self.lookups.append(token)
        return self.grants.get(token)


class TestCachedTokens:
    def test_a_revoked_token_is_refused_after_half_a_minute(self):
        token = new_token("acme", ["*"], now=NOW).token
        tokens, now = CountingTokens(t=token), [1000.0]
        cached = CachedTokens(tokens, clock=lambda: now[0])
        assert cached.find("t") is token
        tokens.grants["t"] = token.model_copy(update={"revoked": True})
        now[0] += 29.999
        assert cached.find("t") is token
        assert len(tokens.lookups) == 1
        now[0] += 0.001
        assert cached.find("t").revoked
        assert len(tokens.lookups) == 2

    def test_a_deleted_token_is_unknown_after_half_a_minute(self):
        tokens, now = CountingTokens(t=new_token("acme", ["*"], now=NOW).token), [0.0]
        cached = CachedTokens(tokens, clock=lambda: now[0])
        assert cached.find("t")
        tokens.grants.clear()
        now[0] += 30
        assert cached.find("t") is None

    def test_an_unknown_token_is_not_cached_because_it_may_be_created_later(self):
        tokens = CountingTokens()
        cached = CachedTokens(tokens, clock=lambda: 0.0)
        assert [cached.find("t"), cached.find("t")] == [None, None]
        tokens.grants["t"] = new_token("acme", ["*"], now=NOW).token
        assert cached.find("t")
        assert len(tokens.lookups) == 3

    def test_the_cache_holds_at_most_a_thousand_tokens(self):
        token = new_token("acme", ["*"], now=NOW).token
        tokens = CountingTokens(**{f"t{number}": token for number in range(1001)})
        cached = CachedTokens(tokens, clock=lambda: 0.0)
        for name in tokens.grants:
            cached.find(name)
        cached.find("t1000")
        assert len(tokens.lookups) == 1001
        cached.find("t0")
        assert len(tokens.lookups) == 1002


class TestTable:
    def test_only_the_hash_is_stored(self, table, dynamodb):
        new = table.create("acme", ["weather", "flights", "weather"], expires_at=NOW)
        items = dynamodb.items("tokens")
        assert new.plain not in str(items)
        (item,) = [item for item in items if "partner" in item]
        assert item == {
            "token_hash": {"S": sha256(new.plain)},
            "partner": {"S": "acme"},
            "sources": {"SS": ["flights", "weather"]},
            "created_at": {"S": new.token.created_at.isoformat()},
            "expires_at": {"S": "2013-03-12T09:30:00+00:00"},
            "revoked": {"BOOL": False},
        }

    def test_a_stored_token_can_be_looked_up(self, table, dynamodb):
        before = datetime.now(UTC)
        new = table.create("acme", ["weather"], expires_at=NOW)
        assert before <= new.token.created_at <= datetime.now(UTC)
        dynamodb.calls.clear()
        assert table.find(new.plain) == new.token == table.all()[0]
        assert dynamodb.calls == ["GetItem", "Scan"]
        assert table.create("globex", ["*"]).token.expires_at is None

    def test_other_items_in_the_table_are_not_tokens(self, table, dynamodb):
        new = table.create("acme", ["*"])
        for plain in ("partner#acme", sha256(new.plain), new.token.id, f"{new.plain} ", "x", ""):
            assert table.find(plain) is None
        assert len(table.all()) == 1
        assert len(dynamodb.items("tokens")) == 2

    def test_a_partner_has_two_valid_tokens_at_most(self, table):
        first, second = table.create("acme", ["*"]), table.create("acme", ["*"])
        with pytest.raises(InputError) as refused:
            table.create("acme", ["*"])
        assert str(refused.value) == (
            f"acme has 2 valid tokens, {first.token.id} and {second.token.id}, and may have 2: revoke one that is no "
            f"longer used, such as the oldest (slackwater token revoke {first.token.id})"
        )
        assert ids(table) == [first.token.id, second.token.id]
        assert table.create("globex", ["*"])

    def test_revoked_and_expired_tokens_do_not_count_towards_the_limit(self, table):
        first = table.create("acme", ["*"])
        table.create("acme", ["*"], expires_at=datetime.now(UTC))
        second = table.create("acme", ["*"])
        table.revoke(first.token)
        third = table.create("acme", ["*"])
        assert ids(table) == [second.token.id, third.token.id]
        assert table.find(first.plain).revoked
        assert table.find(first.plain) == first.token.model_copy(update={"revoked": True})
        assert len(table.all()) == 4

    def test_the_oldest_token_can_be_replaced(self, table):
        created = [table.create("operator", ["*"], instead_of_oldest=True).token.id for _ in range(4)]
        assert ids(table, "operator") == created[2:]
        states = {token.id: token.revoked for token in table.all()}
        assert [states[id_] for id_ in created] == [True, True, False, False]

    def test_a_token_can_be_revoked_twice_but_not_after_it_is_deleted(self, table, dynamodb):
        token = table.create("acme", ["*"]).token
        table.revoke(token)
        table.revoke(token)
        dynamodb.client.delete_item(TableName="tokens", Key={"token_hash": {"S": token.token_hash}})
        with pytest.raises(CloudError, match=f"could not revoke the token {token.id} of acme: ConditionalCheckFailed"):
            table.revoke(token)
        assert table.all() == []

    def test_tokens_are_listed_by_partner_and_age(self, table, dynamodb):
        for plain, day, partner in [("a", 9, "b"), ("b", 8, "b"), ("c", 10, "a"), ("d", 7, "b")]:
            put_old_item(dynamodb, plain, at=f"2013-03-{day:02}T00:00:00+00:00", partner=partner)
        assert [token.token_hash for token in table.all()] == [sha256(plain) for plain in "cdba"]


class TestOldItems:
    def test_old_items_are_valid_tokens_that_can_be_listed_and_revoked(self, table, dynamodb):
        put_old_item(dynamodb, "old", partner="a partner of old")
        (token,) = table.all()
        assert table.find("old") == token
        assert (token.partner, token.id, token.allows("weather")) == ("a partner of old", sha256("old")[:12], True)
        table.revoke(token)
        assert table.find("old").revoked

    def test_old_items_count_towards_the_limit(self, table, dynamodb):
        put_old_item(dynamodb, "one")
        put_old_item(dynamodb, "gone", expires_at={"S": "2013-03-09T00:00:00+00:00"})
        table.create("acme", ["*"])
        with pytest.raises(InputError, match=f"{sha256('one')[:12]} and "):
            table.create("acme", ["*"])

    def test_more_than_two_old_items_are_all_named_and_replaced_by_one_new_token(self, table, dynamodb):
        for number in range(4):
            put_old_item(dynamodb, f"old{number}", at=f"2013-03-08T12:00:0{number}+00:00")
        with pytest.raises(InputError, match="acme has 4 valid tokens"):
            table.create("acme", ["*"])
        new = table.create("acme", ["*"], instead_of_oldest=True)
        assert ids(table) == [sha256("old3")[:12], new.token.id]


class Crash(Exception):
    """Simulates the end of the process."""


def act_once(operation, act):
    """Return a callback for calls that runs `act` at the first call of that operation."""
    pending = [act]

    def on_call(name):
        if name == operation and pending:
            pending.pop()()

    return on_call


def crash():
    raise Crash


CALLS = ["GetItem", "Scan", "TransactWriteItems"]


class TestConcurrentChanges:
    @pytest.mark.parametrize("others", [1, 2])
    @pytest.mark.parametrize(
        ("call", "existing"),
        [(call, existing) for call in CALLS for existing in (0, 1, 2) if (call, existing) != (CALLS[-1], 2)],
    )
    def test_tokens_created_at_the_same_time_are_counted(self, table, dynamodb, call, existing, others):
        created = [table.create("acme", ["*"]) for _ in range(existing)]

        def create():
            try:
                created.append(table.create("acme", ["*"]))
            except InputError:
                refused.append(True)

        refused = []
        dynamodb.before = act_once(call, lambda: [create() for _ in range(others)])
        create()
        assert ids(table) == [new.token.id for new in created]
        assert len(created) == min(2, existing + others + 1)
        assert len(created) + len(refused) == existing + others + 1

    @pytest.mark.parametrize("call", CALLS[:2])
    def test_a_token_revoked_at_the_same_time_does_not_count(self, table, dynamodb, call):
        first, second = table.create("acme", ["*"]), table.create("acme", ["*"])
        dynamodb.before = act_once(call, lambda: table.revoke(first.token))
        new = table.create("acme", ["*"])
        assert ids(table) == [second.token.id, new.token.id]

    def test_two_of_eight_concurrent_creations_succeed(self, table):
        def create(_):
            try:
                return table.create("acme", ["*"]).token.id
            except InputError:
                return None

        with ThreadPoolExecutor(8) as pool:
            created = [id_ for id_ in pool.map(create, range(8)) if id_]
        assert len(created) == 2
        assert set(ids(table)) == set(created)

    def test_two_tokens_stay_valid_after_eight_concurrent_replacements(self, table):
        with ThreadPoolExecutor(8) as pool:
            created = list(
                pool.map(lambda _: table.create("operator", ["*"], instead_of_oldest=True).token.id, range(8))
            )
        assert len(set(created)) == 8
        assert len(ids(table, "operator")) == 2

    def test_partners_do_not_block_each_other(self, table, dynamodb):
        dynamodb.before = act_once("TransactWriteItems", lambda: table.create("globex", ["*"]))
        table.create("acme", ["*"])
        assert dynamodb.calls.count("TransactWriteItems") == 2

    def test_repeated_conflicts_end_with_an_error(self, table, dynamodb):
        def overtake(name):
            if name == "TransactWriteItems":
                revision = {"revision": {"N": str(len(dynamodb.calls))}}
                dynamodb.before = lambda _: None
                dynamodb.client.put_item(TableName="tokens", Item={"token_hash": {"S": "partner#acme"}, **revision})
                dynamodb.before = overtake

        dynamodb.before = overtake
        with pytest.raises(
            CloudError, match="could not store a token of acme: others were created at the same time: try"
        ):
            table.create("acme", ["*"])
        assert table.all() == []
        assert dynamodb.calls.count("TransactWriteItems") == 10


class TestCrashes:
    @pytest.mark.parametrize("call", CALLS)
    def test_a_crash_before_any_call_stores_nothing(self, table, dynamodb, call):
        first = table.create("acme", ["*"])
        before = dynamodb.items("tokens")
        dynamodb.before = act_once(call, crash)
        with pytest.raises(Crash):
            table.create("acme", ["*"])
        assert dynamodb.items("tokens") == before
        second = table.create("acme", ["*"])
        assert ids(table) == [first.token.id, second.token.id]

    def test_a_crash_after_the_write_leaves_a_listed_token_that_can_be_revoked(self, table, dynamodb):
        table.create("acme", ["*"])
        dynamodb.after = act_once("TransactWriteItems", crash)
        with pytest.raises(Crash):
            table.create("acme", ["*"])
        _, lost = table.all()
        with pytest.raises(InputError, match=lost.id):
            table.create("acme", ["*"])
        table.revoke(lost)
        assert table.create("acme", ["*"])

    def test_a_replacement_is_atomic(self, table, dynamodb):
        first, second = table.create("operator", ["*"]), table.create("operator", ["*"])
        dynamodb.before = act_once("TransactWriteItems", crash)
        with pytest.raises(Crash):
            table.create("operator", ["*"], instead_of_oldest=True)
        assert ids(table, "operator") == [first.token.id, second.token.id]
        dynamodb.after = act_once("TransactWriteItems", crash)
        with pytest.raises(Crash):
            table.create("operator", ["*"], instead_of_oldest=True)
        _, third = ids(table, "operator")
        assert ids(table, "operator") == [second.token.id, third]
        assert third != first.token.id

    def test_a_repeated_transaction_is_executed_once(self, dynamodb):
        """The response is lost; botocore sends the same request again, with the same idempotency token."""
        local = LocalDynamoDB(dynamodb.endpoint, attempts=2)
        with local.table("tokens", "token_hash") as name:

            def lose():
                raise ConnectionClosedError(endpoint_url="http://dynamodb")

            local.after = act_once("TransactWriteItems", lose)
            table = TokenTable(local.client, name)
            new = table.create("acme", ["*"])
            assert local.calls.count("TransactWriteItems") == 2
            assert local.calls.count("Scan") == 1
            assert table.all() == [new.token]


class TestAwsResponses:
    """Responses of AWS that the local cloud does not produce."""

    @pytest.fixture
    def client(self):
        return boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")

    def test_all_pages_of_tokens_are_listed(self, client):
        def item(digit):
            return {
                "token_hash": {"S": digit * 64},
                "partner": {"S": "acme"},
                "sources": {"SS": ["*"]},
                "created_at": {"S": "2013-03-08T12:00:00+00:00"},
            }

        parameters = {"TableName": "tokens", "ConsistentRead": True}
        last = {"token_hash": {"S": "1" * 64}}
        with Stubber(client) as stub:
            lock = {"token_hash": {"S": "partner#acme"}, "revision": {"N": "2"}}
            stub.add_response("scan", {"Items": [item("1"), lock], "LastEvaluatedKey": last}, parameters)
            stub.add_response("scan", {"Items": [item("2")]}, {**parameters, "ExclusiveStartKey": last})
            assert [token.id for token in TokenTable(client, "tokens").all()] == ["1" * 12, "2" * 12]

    def test_a_token_is_read_consistently(self, client):
        parameters = {"TableName": "tokens", "Key": {"token_hash": {"S": sha256("x")}}, "ConsistentRead": True}
        with Stubber(client) as stub:
            stub.add_response("get_item", {}, parameters)
            assert TokenTable(client, "tokens").find("x") is None

    @pytest.mark.parametrize(
        ("reasons", "attempts"), [(["None", "TransactionConflict"], 2), (["None", "ThrottlingError"], 1), (None, 1)]
    )
    def test_a_transaction_is_retried_only_after_a_conflict(self, client, reasons, attempts):
        code = "TransactionCanceledException" if reasons else "AccessDeniedException"
        response = {"CancellationReasons": [{"Code": reason} for reason in reasons or ()]}
        with Stubber(client) as stub:
            for attempt in range(attempts):
                lock = {"token_hash": {"S": "partner#acme"}}
                stub.add_response("get_item", {}, {"TableName": "tokens", "Key": lock, "ConsistentRead": True})
                stub.add_response("scan", {"Items": []}, {"TableName": "tokens", "ConsistentRead": True})
                if attempt == 1:
                    stub.add_response("transact_write_items", {})
                else:
                    stub.add_client_error("transact_write_items", code, modeled_fields=response if reasons else None)
            table = TokenTable(client, "tokens")
            if attempts == 1:
                with pytest.raises(Throttled if reasons else AccessDenied, match="could not store a token of acme"):
                    table.create("acme", ["*"])
            else:
                assert table.create("acme", ["*"])
            stub.assert_no_pending_responses()
