"""JSON Web Tokens of a real issuer on this machine, with real keys, valid and invalid."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from lambdas import receive_events
from slackwater.errors import OutboundRefused, PartnerError
from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.receiver.push.jwt_tokens import IssuerKeys, JwtTokens, TokensByFormat
from tests.fakes_functions import resources_of
from tests.fakes_receiver import MemoryTokens, a_source
from tests.oidc_issuer import Issuer, private_key, public_jwk
from tests.pushing import Setup, call_function

pytestmark = pytest.mark.unit

AUDIENCE = "slackwater"
JSON = "application/json"


@pytest.fixture(scope="module")
def keys():
    """A private key for each accepted algorithm, and another RSA key that is not published."""
    return {name: private_key(name) for name in ("RS256", "ES256", "EdDSA")} | {"other": private_key("RS256")}


@pytest.fixture(scope="module")
def transport():
    """Share one transport among all tests: creating one takes longer than most of them."""
    with httpx.HTTPTransport() as transport:
        yield transport


@pytest.fixture
def issuer(keys):
    with Issuer() as issuer:
        issuer.keys = [public_jwk(name, keys[name], name.lower()) for name in ("RS256", "ES256", "EdDSA")]
        yield issuer


class World:
    """Tokens verified with an issuer's keys, at a time that a test sets."""

    def __init__(self, issuer, keys, transport):
        self.issuer, self.keys, self.now, self.refused = issuer, keys, 1000.0, []
        published = IssuerKeys(issuer.url, transport=transport)
        self.tokens = JwtTokens(published, audience=AUDIENCE, on_refused=self.refused.append)

    def claims(self, **changes):
        """Return the claims of a valid token; a change to None removes a claim."""
        now = int(time.time())
        claims = {
            "iss": self.issuer.url,
            "aud": AUDIENCE,
            "sub": "client-7",
            "exp": now + 300,
            "nbf": now - 5,
            "slackwater_sources": ["things"],
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, algorithm="RS256", *, key=None, kid=None, header=None, **changes):
        key, kid = key or self.keys[algorithm], kid or algorithm.lower()
        return self.issuer.token(key, self.claims(**changes), algorithm=algorithm, kid=kid, **(header or {}))

    def reason(self, token):
        """Return the reason why the token is refused."""
        assert self.tokens.find(token) is None
        (reason,) = self.refused
        assert not any(part in reason for part in token.split(".") if len(part) > 3)
        self.refused.clear()
        return reason


@pytest.fixture
def world(issuer, keys, transport, monkeypatch):
    world = World(issuer, keys, transport)
    monkeypatch.setattr(time, "monotonic", lambda: world.now)
    return world


def segment(value):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


class TestValidTokens:
    @pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
    def test_each_signature_algorithm_is_accepted(self, world, algorithm):
        token = world.token(algorithm, exp=2_000_000_000)
        grant = world.tokens.find(token)
        assert (grant.partner, grant.sources) == ("client-7", {"things"})
        assert grant.expires_at == datetime(2033, 5, 18, 3, 33, 50, tzinfo=UTC)
        assert (grant.allows("things"), grant.allows("others")) == (True, False)
        assert world.refused == []

    @pytest.mark.parametrize(
        ("claims", "partner", "sources"),
        [
            ({"slackwater_partner": "acme"}, "acme", {"things"}),
            ({"slackwater_partner": "acme", "sub": None}, "acme", {"things"}),
            ({"sub": "auth0|5f7c8ec7c33c6c004bbafe82"}, "auth0|5f7c8ec7c33c6c004bbafe82", {"things"}),
            ({"slackwater_sources": "*"}, "client-7", {"*"}),
            ({"slackwater_sources": ["*"]}, "client-7", {"*"}),
            ({"slackwater_sources": ["a", "b", "a"]}, "client-7", {"a", "b"}),
            ({"slackwater_sources": []}, "client-7", set()),
            ({"slackwater_sources": None}, "client-7", set()),
            ({"aud": ["other", AUDIENCE]}, "client-7", {"things"}),
            ({"nbf": None}, "client-7", {"things"}),
            ({"iat": 1_600_000_000, "jti": "7", "scope": "push", "azp": "x"}, "client-7", {"things"}),
        ],
    )
    def test_claims_set_partner_and_sources(self, world, claims, partner, sources):
        grant = world.tokens.find(world.token(**claims))
        assert (grant.partner, grant.sources) == (partner, sources)

    def test_times_may_differ_by_half_a_minute(self, world):
        now = int(time.time())
        assert world.tokens.find(world.token(exp=now - 15))
        assert world.tokens.find(world.token(nbf=now + 15))
        assert world.tokens.find(world.token(iat=now + 15))
        assert "expired" in world.reason(world.token(exp=now - 31))
        assert "not yet valid" in world.reason(world.token(nbf=now + 60))

    def test_an_issuer_whose_name_ends_in_a_slash_is_accepted(self, world):
        world.issuer.name = f"{world.issuer.url}/"
        assert world.tokens.find(world.token(iss=world.issuer.name))


class TestInvalidTokens:
    @pytest.mark.parametrize(
        ("claims", "reason"),
        [
            ({"exp": 1_600_000_000}, "expired"),
            ({"exp": None}, '"exp"'),
            ({"exp": "soon"}, "(exp)"),
            ({"exp": 10**18}, "exp is not a time"),
            ({"exp": [1]}, "(exp)"),
            ({"nbf": 4_000_000_000}, "not yet valid (nbf)"),
            ({"iat": 4_000_000_000}, "not yet valid (iat)"),
            ({"nbf": "later"}, "(nbf)"),
            ({"aud": "other"}, "Audience"),
            ({"aud": ["slack", "water"]}, "Audience"),
            ({"aud": None}, '"aud"'),
            ({"aud": []}, '"aud"'),
            ({"iss": "https://other.example"}, "issuer"),
            ({"iss": None}, '"iss"'),
            ({"sub": None}, "slackwater_partner, or else sub,"),
            ({"sub": ""}, "slackwater_partner, or else sub,"),
            ({"sub": "a\nb"}, "slackwater_partner, or else sub,"),
            ({"sub": "a" * 256}, "slackwater_partner, or else sub,"),
            ({"slackwater_partner": 7}, "slackwater_partner, or else sub,"),
            ({"slackwater_partner": "é"}, "slackwater_partner, or else sub,"),
            ({"slackwater_sources": "things"}, "neither an array of names nor *"),
            ({"slackwater_sources": {"things": 1}}, "neither an array of names nor *"),
            ({"slackwater_sources": ["things", 7]}, "neither an array of names nor *"),
        ],
    )
    def test_invalid_claims_are_refused(self, world, claims, reason):
        # Signed by hand: a JWT library would not sign some of these.
        header = {"alg": "RS256", "kid": "rs256"}
        signed = f"{segment(header)}.{segment(world.claims(**claims))}"
        signature = signature_of(world.keys["RS256"], signed)
        assert reason in world.reason(f"{signed}.{segment(signature)}")

    def test_a_signature_by_another_key_is_refused(self, world):
        assert "Signature" in world.reason(world.token(key=world.keys["other"]))

    def test_changed_claims_are_refused(self, world):
        header, _, signature = world.token().split(".")
        forged = segment(world.claims(slackwater_sources="*"))
        assert "Signature" in world.reason(f"{header}.{forged}.{signature}")

    @pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
    @pytest.mark.parametrize("signature", ["", "AAAA"])
    def test_a_missing_signature_is_refused(self, world, algorithm, signature):
        header = segment({"alg": algorithm, "kid": "rs256"})
        assert "alg" in world.reason(f"{header}.{segment(world.claims())}.{signature}")

    @pytest.mark.parametrize("encoding", ["pem", "der", "jwk"])
    @pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512", "RS256"])
    def test_the_public_key_is_not_accepted_as_a_shared_secret(self, world, algorithm, encoding):
        public = world.keys["RS256"].public_key()
        public_format = serialization.PublicFormat.SubjectPublicKeyInfo
        secret = {
            "pem": public.public_bytes(serialization.Encoding.PEM, public_format),
            "der": public.public_bytes(serialization.Encoding.DER, public_format),
            "jwk": json.dumps(world.issuer.keys[0]).encode(),
        }[encoding]
        signed = f"{segment({'alg': algorithm, 'kid': 'rs256'})}.{segment(world.claims())}"
        digest = {"HS384": hashlib.sha384, "HS512": hashlib.sha512}.get(algorithm, hashlib.sha256)
        signature = hmac.new(secret, signed.encode(), digest).digest()
        assert world.reason(f"{signed}.{segment(signature)}") in {
            "The specified alg value is not allowed",
            "Signature verification failed",
        }

    def test_a_secret_that_the_issuer_publishes_verifies_nothing(self, world):
        secret = b"0123456789abcdef0123456789abcdef"
        for kid, alg in (("shared", "HS256"), ("sly", "RS256"), ("plain", None)):
            world.issuer.keys.append({"kty": "oct", "kid": kid, "k": segment(secret), **({"alg": alg} if alg else {})})
        for kid in ("shared", "sly", "plain"):
            for algorithm in ("HS256", "RS256"):
                signed = f"{segment({'alg': algorithm, 'kid': kid})}.{segment(world.claims())}"
                signature = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
                assert world.reason(f"{signed}.{segment(signature)}") == "the issuer has no key with that kid"

    def test_a_key_of_another_algorithm_is_refused(self, world):
        assert "alg" in world.reason(world.token("RS256", kid="es256"))
        assert "alg" in world.reason(world.token("ES256", kid="rs256"))
        header = segment({"alg": "PS256", "kid": "rs256"})
        assert "alg" in world.reason(f"{header}.{segment(world.claims())}.AAAA")

    def test_a_key_for_encryption_is_refused(self, world):
        world.issuer.keys[0]["use"] = "enc"
        assert world.reason(world.token()) == "the issuer has no key with that kid"

    def test_a_too_short_key_is_refused(self, world):
        short = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - that is the point
        world.issuer.keys.append(public_jwk("RS256", short, "short"))
        with pytest.warns(match="1024"):
            token = world.token(key=short, kid="short")
        assert "1024" in world.reason(token)

    def test_a_key_in_the_token_is_refused(self, world):
        own = {"jwk": public_jwk("RS256", world.keys["other"], "rs256"), "jku": "http://127.0.0.1:9/keys"}
        assert "Signature" in world.reason(world.token(key=world.keys["other"], header=own))

    def test_a_token_without_a_key_id_is_refused(self, world):
        signed = f"{segment({'alg': 'RS256'})}.{segment(world.claims())}"
        token = f"{signed}.{segment(signature_of(world.keys['RS256'], signed))}"
        assert world.reason(token) == "its header names no key (kid)"
        assert world.issuer.requested == []

    @pytest.mark.parametrize(
        "token",
        [
            "..",
            "a.b.c",
            "e30.e30.e30",
            f"{segment([1])}.e30.",
            f"{segment(b'[' * 100_000)}.e30.",
            f"{segment({'alg': 'RS256', 'kid': 7})}.e30.",
            f"{segment({'alg': 'RS256', 'kid': ['rs256']})}.e30.",
            f"{segment({'alg': 'RS256', 'kid': 'rs256', 'crit': ['exp']})}.e30.AAAA",
            f"{segment({'alg': 'RS256', 'kid': 'rs256', 'b64': False})}..AAAA",
            f"{segment({'alg': 'RS256', 'kid': 'rs256'})}.!!!!.AAAA",
            f"{segment({'kid': 'rs256'})}.e30.AAAA",
            f"{segment({'alg': ['RS256'], 'kid': 'rs256'})}.e30.AAAA",
        ],
        ids=range(12),
    )
    def test_malformed_tokens_are_refused(self, world, token):
        assert world.reason(token)


def signature_of(key, signed):
    return RSAAlgorithm(RSAAlgorithm.SHA256).sign(signed.encode(), key)


class TestIssuerKeys:
    def key_fetches(self, world):
        count = world.issuer.requested.count("keys")
        assert world.issuer.requested == ["openid-configuration", "keys"] * count
        return count

    def test_keys_are_fetched_once_in_ten_minutes(self, world):
        token = world.token()
        assert world.issuer.requested == []
        for seconds, key_fetches in ((0, 1), (600, 1), (0.001, 2), (599, 2)):
            world.now += seconds
            assert world.tokens.find(token)
            assert self.key_fetches(world) == key_fetches

    def test_a_withdrawn_key_is_valid_for_ten_minutes_more_at_most(self, world):
        token = world.token()
        assert world.tokens.find(token)
        world.issuer.keys.pop(0)
        world.now += 599
        assert world.tokens.find(token)
        world.now += 1.001
        assert world.reason(token) == "the issuer has no key with that kid"

    def test_a_new_key_is_fetched_with_its_first_token(self, world):
        assert world.tokens.find(world.token())
        world.issuer.keys = [public_jwk("RS256", world.keys["other"], "next")]
        world.now += 60
        assert world.tokens.find(world.token(key=world.keys["other"], kid="next"))
        assert self.key_fetches(world) == 2
        assert world.reason(world.token()) == "the issuer has no key with that kid"
        assert self.key_fetches(world) == 2

    def test_invented_key_ids_cause_few_requests_to_the_issuer(self, world):
        good = world.token()
        for second in range(300):
            assert world.tokens.find(world.token("EdDSA", kid=f"invented-{second}")) is None
            assert world.tokens.find(good)
            world.now += 1
        assert self.key_fetches(world) == 5

    def test_unknown_keys_are_refused_without_a_request_within_the_minute(self, world):
        assert world.tokens.find(world.token())
        world.now += 59.999
        assert world.reason(world.token(kid="unknown")) == "the issuer has no key with that kid"
        assert self.key_fetches(world) == 1
        world.now += 0.001
        world.reason(world.token(kid="unknown"))
        assert self.key_fetches(world) == 2

    @pytest.mark.parametrize(
        ("path", "status", "body", "message"),
        [
            (".well-known/openid-configuration", 500, b"", "answered 500"),
            (".well-known/openid-configuration", 302, b"", "answered 302"),
            (".well-known/openid-configuration", 200, b"<html>", "openid-configuration: "),
            (".well-known/openid-configuration", 200, b"\xff", "openid-configuration: "),
            (".well-known/openid-configuration", 200, b"[]", "a JSON object is expected"),
            (".well-known/openid-configuration", 200, b"{}", "`issuer` is not http"),
            (".well-known/openid-configuration", 200, {"issuer": "https://o.example"}, "`issuer` is not http"),
            (".well-known/openid-configuration", 200, {}, "`jwks_uri` is not an https URL"),
            (".well-known/openid-configuration", 200, {"jwks_uri": 7}, "`jwks_uri` is not an https URL"),
            (".well-known/openid-configuration", 200, {"jwks_uri": "file:///etc/passwd"}, "file:///etc/passwd: "),
            (".well-known/openid-configuration", 200, {"jwks_uri": "http://[::"}, r"http://[::: "),
            ("keys", 404, b"", "answered 404"),
            ("keys", 200, b'{"keys": []}', "not a set of keys"),
            ("keys", 200, b'{"keys": {"a": 1}}', "not a set of keys"),
            ("keys", 200, b'{"keys": [{"kty": "RSA", "kid": "rs256"}]}', "not a set of keys"),
            ("keys", 200, b'{"keys": [{"kty": "oct", "kid": "rs256", "k": "AAAA"}]}', "no key is for RS256"),
        ],
    )
    def test_an_invalid_response_of_the_issuer_is_an_error_and_does_not_refuse_the_token(
        self, world, path, status, body, message
    ):
        if isinstance(body, dict):
            body = json.dumps({"issuer": world.issuer.url, **body}).encode()
        world.issuer.answers[f"/realms/partners/{path}"] = (status, body)
        with pytest.raises(PartnerError) as failed:
            world.tokens.find(world.token())
        assert str(failed.value).startswith(f"the keys of {world.issuer.url} cannot be read: ")
        assert message in str(failed.value)
        assert world.refused == []

    def test_no_connection_stays_open_while_a_function_is_frozen(self):
        connection_headers = []

        def answer(request):
            connection_headers.append(request.headers["connection"])
            document = {"issuer": "https://i.example", "jwks_uri": "https://i.example/keys"}
            return httpx.Response(200, json=document)

        with pytest.raises(PartnerError, match="not a set of keys"):
            IssuerKeys("https://i.example", transport=httpx.MockTransport(answer)).get_signing_key("rs256")
        assert connection_headers == ["close", "close"]

    def test_keys_of_an_https_issuer_are_fetched_by_https(self):
        document = {"issuer": "https://i.example", "jwks_uri": "http://i.example/keys"}
        transport = httpx.MockTransport(lambda _: httpx.Response(200, json=document))
        with pytest.raises(PartnerError, match="`jwks_uri` is not an https URL"):
            IssuerKeys("https://i.example", transport=transport).get_signing_key("rs256")

    def test_a_failing_issuer_is_requested_again_after_ten_seconds(self, world):
        down = {f"/realms/partners/{path}": (503, b"") for path in (".well-known/openid-configuration",)}
        world.issuer.answers = dict(down)
        for seconds, requests in ((0, 1), (0, 1), (9.999, 1), (0.001, 2)):
            world.now += seconds
            with pytest.raises(PartnerError, match="answered 503"):
                world.tokens.find(world.token())
            assert world.issuer.requested == ["openid-configuration"] * requests
        world.issuer.answers.clear()
        world.now += 9
        with pytest.raises(PartnerError):
            world.tokens.find(world.token())
        world.now += 1
        assert world.tokens.find(world.token())
        assert world.reason(world.token(kid="unknown")) == "the issuer has no key with that kid"

    def test_while_the_issuer_fails_known_keys_are_valid_and_unknown_keys_an_error(self, world):
        good = world.token()
        assert world.tokens.find(good)
        path = "/realms/partners/keys"
        world.issuer.answers[path] = (500, b"")
        world.now += 60
        for _ in range(2):
            with pytest.raises(PartnerError):
                world.tokens.find(world.token("EdDSA", kid="unknown"))
            assert world.tokens.find(good)
        assert world.issuer.requested.count("keys") == 2
        world.now += 540.001
        with pytest.raises(PartnerError):
            world.tokens.find(good)

    def test_an_unreachable_issuer_is_an_error(self, keys, transport):
        with Issuer() as gone:
            pass
        world = World(gone, keys, transport)
        with pytest.raises(PartnerError, match=r"cannot be read: http://127.0.0.1:\d+/realms/.*refused"):
            world.tokens.find(world.token())

    def test_requests_pass_the_outbound_guard(self, world):
        port = world.issuer.url.split("/")[2].rpartition(":")[2]
        for allowed in ((), (f"127.0.0.1:{port}",)):
            guarded = GuardedTransport(Outbound.of(allowed))
            published = IssuerKeys(world.issuer.url, transport=guarded)
            if allowed:
                assert published.get_signing_key("rs256")
            else:
                with pytest.raises(PartnerError, match=r"cannot be read: .*127\.0\.0\.1") as failed:
                    published.get_signing_key("rs256")
                assert isinstance(failed.value.__cause__, OutboundRefused)
            guarded.close()


class TestApi:
    """Responses to partners."""

    @pytest.fixture
    def post(self, world):
        tokens = TokensByFormat(own=MemoryTokens({"own": ["things"]}), issued=world.tokens)
        setup = Setup(*(a_source(source=name) for name in ("things", "others")), tokens=tokens)

        def post(token, source="things"):
            return setup.post(body=b"[]", source=source, authorization=f"Bearer {token}", content_type=JSON)

        return post

    def test_the_format_of_a_token_selects_where_it_is_looked_up(self, world, post):
        assert post("own").status == 202
        assert world.issuer.requested == []
        assert post(world.token()).status == 202
        assert [post(token).status for token in ("x.y", "x", "a.b.c.d")] == [401, 401, 401]
        assert len(world.issuer.requested) == 2

    def test_a_source_that_is_not_in_the_claim_is_forbidden(self, world, post):
        assert post(world.token(), "others").status == 403
        assert post(world.token(slackwater_sources=None)).status == 403
        assert post(world.token(slackwater_sources="*"), "others").status == 202

    def test_the_response_is_the_same_for_every_invalid_token(self, world, post):
        answers = [
            post(token)
            for token in (
                world.token(exp=1),
                world.token(aud="other"),
                world.token(key=world.keys["other"]),
                world.token(kid="unknown"),
                "a.b.c",
                "wrong",
                "wr\u00f6ng",
            )
        ]
        assert {answer.status for answer in answers} == {401}
        assert {json.dumps(answer.body) for answer in answers} == {
            json.dumps(
                {
                    "error": {
                        "code": "unauthorized",
                        "message": "send a valid token: `Authorization: Bearer <token>`; if yours has expired or was "
                        "revoked, ask for a new one",
                    }
                }
            )
        }


class TestHandler:
    @pytest.fixture
    def call(self, world, monkeypatch, use_api):
        """Return a call of the function; its environment names the issuer, and its logs are recorded."""
        settings = {
            "token_table": "tokens",
            "oidc_issuer": world.issuer.url,
            "oidc_audience": AUDIENCE,
            "outbound_allow": "10.0.0.0/8,127.0.0.1",
        }
        self.logs = io.StringIO()
        monkeypatch.setattr(receive_events.logger.registered_handler, "stream", self.logs)
        clients = {"dynamodb": SimpleNamespace(get_item=lambda **_: {})}
        tokens = resources_of(settings, clients=clients.get).accepted_tokens
        use_api(Setup(tokens=tokens).api)

        def call(token):
            answer = call_function(b"[]", **{"Authorization": f"Bearer {token}", "Content-Type": JSON})
            return answer["statusCode"], answer["headers"].get("www-authenticate")

        return call

    def test_tokens_of_the_issuer_in_the_environment_are_accepted(self, world, call):
        assert call(world.token()) == (202, None)
        assert call("own") == (401, "Bearer")

    def test_the_log_contains_the_reason_of_a_refusal_but_not_the_token(self, world, call):
        token = world.token(aud="other")
        assert call(token) == (401, "Bearer")
        logged = [json.loads(line) for line in self.logs.getvalue().splitlines()]
        assert [line.get("reason") for line in logged] == ["Audience doesn't match", None]
        assert {line["correlation_id"] for line in logged} == {"request-1"}
        assert not any(part in self.logs.getvalue() for part in token.split("."))

    def test_while_the_issuer_fails_the_response_requests_a_retry(self, world, call):
        world.issuer.answers["/realms/partners/keys"] = (500, b"")
        token = world.token()
        assert call(token) == (503, None)
        assert "answered 500" in self.logs.getvalue()
        assert not any(part in self.logs.getvalue() for part in token.split("."))

    def test_without_an_issuer_a_json_web_token_is_unknown(self, world):
        looked_up = []

        class Table:
            def get_item(self, **call):
                looked_up.append(call["Key"]["token_hash"]["S"])
                return {}

        tokens = resources_of({"token_table": "t"}, clients={"dynamodb": Table()}.get).accepted_tokens
        token = world.token()
        assert tokens.find(token) is None
        assert looked_up == [hashlib.sha256(token.encode()).hexdigest()]
        assert world.issuer.requested == []
