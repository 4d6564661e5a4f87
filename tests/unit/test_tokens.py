"""Tokens of partners: what is kept, how many there can be, and what happens when things happen at once."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError
from botocore.stub import Stubber

from slackwater.aws.tokens import TokenTable
from slackwater.errors import AccessDenied, CloudError, InputError
from slackwater.receiver.push.tokens import KeptTokens, Token, TokenState, new_token, partner_name
from tests.fakes_dynamodb import LocalDynamoDB

pytestmark = pytest.mark.unit

NOW = datetime(2013, 3, 12, 9, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def dynamodb():
    return LocalDynamoDB()


@pytest.fixture
def table(dynamodb):
    with dynamodb.table("tokens", "token_hash") as name:
        dynamodb.calls.clear()
        yield TokenTable(dynamodb.client, name)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def ids(table, partner="acme"):
    """The partner's valid tokens, oldest first."""
    return [token.id for token in table.all() if token.partner == partner and token.valid(datetime.now(UTC))]


def put_old(dynamodb, plain, *, at="2013-03-08T12:00:00+00:00", partner="acme", **more):
    """An item as it was written when a partner could have any number of tokens."""
    item = {
        "token_hash": {"S": sha256(plain)},
        "partner": {"S": partner},
        "sources": {"SS": ["weather"]},
        "created_at": {"S": at},
        "revoked": {"BOOL": False},
        **more,
    }
    dynamodb.client.put_item(TableName="tokens", Item=item)


class TestToken:
    def test_it_is_called_by_the_first_digits_of_its_hash(self):
        new = new_token("acme", ["weather", "weather"], now=NOW)
        assert new.token.token_hash == sha256(new.plain)
        assert new.token.id == sha256(new.plain)[:12]
        assert new.token.sources == {"weather"}
        assert new.plain not in repr(new)

    def test_no_two_are_alike_and_none_looks_like_a_json_web_token(self):
        plain = {new_token("acme", ["*"], now=NOW).plain for _ in range(100)}
        assert len(plain) == 100
        assert {len(token) for token in plain} == {43}
        assert "." not in "".join(plain)

    @pytest.mark.parametrize(
        ("more", "state"),
        [
            ({}, "valid"),
            ({"expires_at": NOW + timedelta(microseconds=1)}, "valid"),
            ({"expires_at": NOW}, "expired"),
            ({"expires_at": NOW - timedelta(days=1)}, "expired"),
            ({"revoked": True}, "revoked"),
            ({"revoked": True, "expires_at": NOW}, "revoked"),
        ],
    )
    def test_what_becomes_of_it(self, more, state):
        token = Token(token_hash="0" * 64, partner="acme", sources=["*"], created_at=NOW, **more)
        assert token.state(NOW) is TokenState(state)
        assert token.valid(NOW) is (state == "valid")

    def test_what_it_opens(self):
        token = new_token("acme", ["flights", "weather"], now=NOW).token
        assert [token.allows(name) for name in ("flights", "weather", "other", "*")] == [True, True, False, False]
        assert new_token("acme", ["*"], now=NOW).token.allows("anything")

    @pytest.mark.parametrize("name", ["acme", "Acme-EU.2_x", "7", "a" * 63])
    def test_names_of_partners(self, name):
        assert partner_name(name) == name

    @pytest.mark.parametrize("name", ["", "a" * 64, "-a", ".a", "a b", "a#b", "a\n", "é", "a/b", "*"])
    def test_what_is_no_name_of_a_partner(self, name):
        with pytest.raises(InputError, match=r"^partner: .* is not a name: 1 to 63 letters, digits"):
            partner_name(name)


class Asked:
    """Tokens that count how often they are asked."""

    def __init__(self, **grants):
        self.grants = grants
        self.asked = []

    def find(self, token):
        self.asked.append(token)
        return self.grants.get(token)


class TestKept:
    def test_a_revoked_token_works_for_half_a_minute_at_most(self):
        token = new_token("acme", ["*"], now=NOW).token
        tokens, now = Asked(t=token), [1000.0]
        kept = KeptTokens(tokens, clock=lambda: now[0])
        assert kept.find("t") is token
        tokens.grants["t"] = token.model_copy(update={"revoked": True})
        now[0] += 29.999
        assert kept.find("t") is token
        assert len(tokens.asked) == 1
        now[0] += 0.001
        assert kept.find("t").revoked
        assert len(tokens.asked) == 2

    def test_one_that_is_gone_is_forgotten(self):
        tokens, now = Asked(t=new_token("acme", ["*"], now=NOW).token), [0.0]
        kept = KeptTokens(tokens, clock=lambda: now[0])
        assert kept.find("t")
        tokens.grants.clear()
        now[0] += 30
        assert kept.find("t") is None

    def test_an_unknown_token_is_asked_for_each_time_since_it_may_be_made_at_any_moment(self):
        tokens = Asked()
        kept = KeptTokens(tokens, clock=lambda: 0.0)
        assert [kept.find("t"), kept.find("t")] == [None, None]
        tokens.grants["t"] = new_token("acme", ["*"], now=NOW).token
        assert kept.find("t")
        assert len(tokens.asked) == 3

    def test_no_more_than_a_thousand_are_kept(self):
        token = new_token("acme", ["*"], now=NOW).token
        tokens = Asked(**{f"t{number}": token for number in range(1001)})
        kept = KeptTokens(tokens, clock=lambda: 0.0)
        for name in tokens.grants:
            kept.find(name)
        kept.find("t1000")
        assert len(tokens.asked) == 1001
        kept.find("t0")
        assert len(tokens.asked) == 1002


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

    def test_it_is_found_as_it_was_made(self, table, dynamodb):
        before = datetime.now(UTC)
        new = table.create("acme", ["weather"], expires_at=NOW)
        assert before <= new.token.created_at <= datetime.now(UTC)
        dynamodb.calls.clear()
        assert table.find(new.plain) == new.token == table.all()[0]
        assert dynamodb.calls == ["GetItem", "Scan"]
        assert table.create("globex", ["*"]).token.expires_at is None

    def test_nothing_else_in_the_table_is_a_token(self, table, dynamodb):
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

    def test_those_that_are_revoked_or_have_expired_take_no_room(self, table):
        first = table.create("acme", ["*"])
        table.create("acme", ["*"], expires_at=datetime.now(UTC))
        second = table.create("acme", ["*"])
        table.revoke(first.token)
        third = table.create("acme", ["*"])
        assert ids(table) == [second.token.id, third.token.id]
        assert table.find(first.plain).revoked
        assert table.find(first.plain) == first.token.model_copy(update={"revoked": True})
        assert len(table.all()) == 4

    def test_the_oldest_makes_room_if_it_is_told_to(self, table):
        made = [table.create("operator", ["*"], instead_of_oldest=True).token.id for _ in range(4)]
        assert ids(table, "operator") == made[2:]
        states = {token.id: token.revoked for token in table.all()}
        assert [states[id_] for id_ in made] == [True, True, False, False]

    def test_a_token_can_be_revoked_twice_but_not_when_it_is_gone(self, table, dynamodb):
        token = table.create("acme", ["*"]).token
        table.revoke(token)
        table.revoke(token)
        dynamodb.client.delete_item(TableName="tokens", Key={"token_hash": {"S": token.token_hash}})
        with pytest.raises(CloudError, match=f"could not revoke the token {token.id} of acme: ConditionalCheckFailed"):
            table.revoke(token)
        assert table.all() == []

    def test_all_are_in_order_of_partner_and_age(self, table, dynamodb):
        for plain, day, partner in [("a", 9, "b"), ("b", 8, "b"), ("c", 10, "a"), ("d", 7, "b")]:
            put_old(dynamodb, plain, at=f"2013-03-{day:02}T00:00:00+00:00", partner=partner)
        assert [token.token_hash for token in table.all()] == [sha256(plain) for plain in "cdba"]


class TestOldItems:
    def test_they_work_and_are_listed_and_can_be_revoked(self, table, dynamodb):
        put_old(dynamodb, "old", partner="a partner of old")
        (token,) = table.all()
        assert table.find("old") == token
        assert (token.partner, token.id, token.allows("weather")) == ("a partner of old", sha256("old")[:12], True)
        table.revoke(token)
        assert table.find("old").revoked

    def test_they_count(self, table, dynamodb):
        put_old(dynamodb, "one")
        put_old(dynamodb, "gone", expires_at={"S": "2013-03-09T00:00:00+00:00"})
        table.create("acme", ["*"])
        with pytest.raises(InputError, match=f"{sha256('one')[:12]} and "):
            table.create("acme", ["*"])

    def test_where_there_are_more_than_two_all_are_named_and_all_that_are_too_many_can_be_replaced(
        self, table, dynamodb
    ):
        for number in range(4):
            put_old(dynamodb, f"old{number}", at=f"2013-03-08T12:00:0{number}+00:00")
        with pytest.raises(InputError, match="acme has 4 valid tokens"):
            table.create("acme", ["*"])
        new = table.create("acme", ["*"], instead_of_oldest=True)
        assert ids(table) == [sha256("old3")[:12], new.token.id]


class Crash(Exception):
    """The process ends here."""


def once(operation, act):
    """Return what is called before or after calls, and acts at the first one of that operation."""
    left = [act]

    def called(name):
        if name == operation and left:
            left.pop()()

    return called


def crash():
    raise Crash


CALLS = ["GetItem", "Scan", "TransactWriteItems"]


class TestAtOnce:
    @pytest.mark.parametrize("others", [1, 2])
    @pytest.mark.parametrize(
        ("call", "there"), [(call, there) for call in CALLS for there in (0, 1, 2) if (call, there) != (CALLS[-1], 2)]
    )
    def test_of_those_made_in_between_none_is_overlooked(self, table, dynamodb, call, there, others):
        made = [table.create("acme", ["*"]) for _ in range(there)]

        def create():
            try:
                made.append(table.create("acme", ["*"]))
            except InputError:
                refused.append(True)

        refused = []
        dynamodb.before = once(call, lambda: [create() for _ in range(others)])
        create()
        assert ids(table) == [new.token.id for new in made]
        assert len(made) == min(2, there + others + 1)
        assert len(made) + len(refused) == there + others + 1

    @pytest.mark.parametrize("call", CALLS[:2])
    def test_what_is_revoked_in_between_makes_room(self, table, dynamodb, call):
        first, second = table.create("acme", ["*"]), table.create("acme", ["*"])
        dynamodb.before = once(call, lambda: table.revoke(first.token))
        new = table.create("acme", ["*"])
        assert ids(table) == [second.token.id, new.token.id]

    def test_of_eight_at_once_two_are_made_and_no_more(self, table):
        def create(_):
            try:
                return table.create("acme", ["*"]).token.id
            except InputError:
                return None

        with ThreadPoolExecutor(8) as pool:
            made = [id_ for id_ in pool.map(create, range(8)) if id_]
        assert len(made) == 2
        assert set(ids(table)) == set(made)

    def test_of_eight_operators_each_gets_a_token_and_two_work(self, table):
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: table.create("operator", ["*"], instead_of_oldest=True).token.id, range(8)))
        assert len(set(made)) == 8
        assert len(ids(table, "operator")) == 2

    def test_partners_do_not_stand_in_each_other_s_way(self, table, dynamodb):
        dynamodb.before = once("TransactWriteItems", lambda: table.create("globex", ["*"]))
        table.create("acme", ["*"])
        assert dynamodb.calls.count("TransactWriteItems") == 2

    def test_who_is_always_overtaken_is_told_so(self, table, dynamodb):
        def overtake(name):
            if name == "TransactWriteItems":
                revision = {"revision": {"N": str(len(dynamodb.calls))}}
                dynamodb.before = lambda _: None
                dynamodb.client.put_item(TableName="tokens", Item={"token_hash": {"S": "partner#acme"}, **revision})
                dynamodb.before = overtake

        dynamodb.before = overtake
        with pytest.raises(CloudError, match="could not keep a token of acme: others were made at the same time; try"):
            table.create("acme", ["*"])
        assert table.all() == []
        assert dynamodb.calls.count("TransactWriteItems") == 10


class TestCrashes:
    @pytest.mark.parametrize("call", CALLS)
    def test_before_any_call_leaves_nothing_behind(self, table, dynamodb, call):
        first = table.create("acme", ["*"])
        before = dynamodb.items("tokens")
        dynamodb.before = once(call, crash)
        with pytest.raises(Crash):
            table.create("acme", ["*"])
        assert dynamodb.items("tokens") == before
        second = table.create("acme", ["*"])
        assert ids(table) == [first.token.id, second.token.id]

    def test_once_it_is_written_the_token_is_listed_and_its_room_can_be_made_free(self, table, dynamodb):
        table.create("acme", ["*"])
        dynamodb.after = once("TransactWriteItems", crash)
        with pytest.raises(Crash):
            table.create("acme", ["*"])
        _, lost = table.all()
        with pytest.raises(InputError, match=lost.id):
            table.create("acme", ["*"])
        table.revoke(lost)
        assert table.create("acme", ["*"])

    def test_of_a_replacement_all_is_done_or_nothing(self, table, dynamodb):
        first, second = table.create("operator", ["*"]), table.create("operator", ["*"])
        dynamodb.before = once("TransactWriteItems", crash)
        with pytest.raises(Crash):
            table.create("operator", ["*"], instead_of_oldest=True)
        assert ids(table, "operator") == [first.token.id, second.token.id]
        dynamodb.after = once("TransactWriteItems", crash)
        with pytest.raises(Crash):
            table.create("operator", ["*"], instead_of_oldest=True)
        _, third = ids(table, "operator")
        assert ids(table, "operator") == [second.token.id, third]
        assert third != first.token.id

    def test_a_transaction_that_is_sent_again_is_carried_out_once(self):
        """The answer is lost on its way; botocore sends the same request again, with the same idempotency token."""
        local = LocalDynamoDB(attempts=2)
        with local.table("tokens", "token_hash") as name:

            def lose():
                raise ConnectionClosedError(endpoint_url="http://dynamodb")

            local.after = once("TransactWriteItems", lose)
            table = TokenTable(local.client, name)
            new = table.create("acme", ["*"])
            assert local.calls.count("TransactWriteItems") == 2
            assert local.calls.count("Scan") == 1
            assert table.all() == [new.token]


class TestAnswers:
    """What AWS answers that the local cloud does not."""

    @pytest.fixture
    def client(self):
        return boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")

    def test_tokens_are_listed_page_by_page(self, client):
        def item(digit):
            return {
                "token_hash": {"S": digit * 64},
                "partner": {"S": "acme"},
                "sources": {"SS": ["*"]},
                "created_at": {"S": "2013-03-08T12:00:00+00:00"},
            }

        asked = {"TableName": "tokens", "ConsistentRead": True}
        last = {"token_hash": {"S": "1" * 64}}
        with Stubber(client) as stub:
            lock = {"token_hash": {"S": "partner#acme"}, "revision": {"N": "2"}}
            stub.add_response("scan", {"Items": [item("1"), lock], "LastEvaluatedKey": last}, asked)
            stub.add_response("scan", {"Items": [item("2")]}, {**asked, "ExclusiveStartKey": last})
            assert [token.id for token in TokenTable(client, "tokens").all()] == ["1" * 12, "2" * 12]

    def test_a_token_is_read_as_it_is_now(self, client):
        asked = {"TableName": "tokens", "Key": {"token_hash": {"S": sha256("x")}}, "ConsistentRead": True}
        with Stubber(client) as stub:
            stub.add_response("get_item", {}, asked)
            assert TokenTable(client, "tokens").find("x") is None

    @pytest.mark.parametrize(
        ("reasons", "attempts"), [(["None", "TransactionConflict"], 2), (["None", "ThrottlingError"], 1), (None, 1)]
    )
    def test_a_transaction_is_tried_again_if_another_one_was_in_its_way(self, client, reasons, attempts):
        code = "TransactionCanceledException" if reasons else "AccessDeniedException"
        more = {"CancellationReasons": [{"Code": reason} for reason in reasons or ()]}
        with Stubber(client) as stub:
            for attempt in range(attempts):
                lock = {"token_hash": {"S": "partner#acme"}}
                stub.add_response("get_item", {}, {"TableName": "tokens", "Key": lock, "ConsistentRead": True})
                stub.add_response("scan", {"Items": []}, {"TableName": "tokens", "ConsistentRead": True})
                if attempt == 1:
                    stub.add_response("transact_write_items", {})
                else:
                    stub.add_client_error("transact_write_items", code, modeled_fields=more if reasons else None)
            table = TokenTable(client, "tokens")
            if attempts == 1:
                with pytest.raises(CloudError if reasons else AccessDenied, match="could not keep a token of acme"):
                    table.create("acme", ["*"])
            else:
                assert table.create("acme", ["*"])
            stub.assert_no_pending_responses()
