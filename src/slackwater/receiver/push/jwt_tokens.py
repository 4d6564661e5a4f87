"""JSON Web Tokens of an OIDC issuer, verified with the issuer's public keys. They are not stored.

The claim `slackwater_sources`, an array of names or `*`, says which sources a token is for. The claim
`slackwater_partner`, or else `sub`, names the partner. Such a token cannot be revoked here: it works until it expires,
usually minutes or hours after the issuer issued it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import jwt

from slackwater.errors import PartnerError
from slackwater.receiver.push.tokens import ALL_SOURCES, Grant, Tokens

# Algorithms that sign with a private key of the issuer. `none` and all algorithms with a shared secret are refused:
# with them, anyone who knows the public key could sign a token.
ALGORITHMS = ("RS256", "ES256", "EdDSA")
# How far the issuer's clock may differ from ours.
LEEWAY_SECONDS = 30
# How long keys stay in memory, so also how long a key that the issuer has withdrawn still works.
_CACHE_SECONDS = 600.0
# Shortest time between two requests because of unknown key ids, so that invented key ids cannot flood the issuer.
_UNKNOWN_KEY_SECONDS = 60.0
# Shortest time between two requests while the issuer does not answer.
_FAILURE_SECONDS = 10.0
_TIMEOUT = httpx.Timeout(5.0)
# A JSON Web Token has three parts separated by dots: header, claims and signature (RFC 7519).
_JWT_DOTS = 2
# OpenID Connect limits a subject (`sub`) to 255 ASCII characters; of these, control characters are refused.
_PARTNER = re.compile(r"[ -~]{1,255}")


class JwtTokens:
    """Finds the grants of an issuer's tokens."""

    def __init__(self, keys: IssuerKeys, *, audience: str, on_refused: Callable[[str], None]) -> None:
        """Accept tokens for `audience`; `on_refused` is called with the reason for each token that is not accepted.

        The reason does not contain the token.
        """
        self._keys = keys
        self._audience = audience
        self._on_refused = on_refused

    def find(self, token: str) -> Grant | None:
        """Return the grant of the token; None when the token is not valid.

        Raises `PartnerError` when the issuer does not answer, so that the token cannot be checked.
        """
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            if key_id is None:
                raise jwt.InvalidTokenError("its header names no key (kid)")
            claims = jwt.decode(
                token,
                self._keys.get_signing_key(key_id),
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._keys.names,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
            return grant_from_claims(claims)
        except jwt.PyJWKClientError:  # its message contains the key id, which anyone can invent
            self._on_refused("the issuer has no key with that kid")
        except jwt.PyJWTError as error:
            self._on_refused(str(error))
        return None


def grant_from_claims(claims: Mapping[str, Any]) -> Grant:
    """Return the grant that verified claims describe. Raises `jwt.InvalidTokenError` when a claim is not valid."""
    try:
        # `Grant.valid` must not refuse what `jwt.decode` accepts with the same leeway.
        expires_at = datetime.fromtimestamp(int(claims["exp"]) + LEEWAY_SECONDS, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise jwt.InvalidTokenError("its claim exp is not a time") from error
    partner = claims.get("slackwater_partner", claims.get("sub"))
    if not isinstance(partner, str) or not _PARTNER.fullmatch(partner):
        raise jwt.InvalidTokenError("its claim slackwater_partner, or else sub, is not a string of 1 to 255 characters")
    # A token without this claim is valid and allows nothing.
    sources = claims.get("slackwater_sources", [])
    if sources == ALL_SOURCES:
        sources = [ALL_SOURCES]
    if not isinstance(sources, list) or not all(isinstance(name, str) for name in sources):
        raise jwt.InvalidTokenError("its claim slackwater_sources is neither an array of names nor *")
    return Grant(partner=partner, sources=frozenset(sources), expires_at=expires_at)


class IssuerKeys(jwt.PyJWKClient):
    """An issuer's public keys, read from its discovery document and kept for ten minutes.

    An unknown key id makes it read them again, at most once a minute.
    """

    def __init__(self, issuer: str, *, transport: httpx.BaseTransport) -> None:
        """Read the keys of `issuer`, a URL without a trailing slash, through `transport`."""
        # `fetch_data` spaces all requests, also those that fail, which PyJWT's cool-down does not.
        super().__init__(f"{issuer}/.well-known/openid-configuration", lifespan=_CACHE_SECONDS, cooldown_duration=0)
        self._issuer = issuer
        self.names = (issuer, f"{issuer}/")
        """Accepted values of the claim `iss`: some issuers end theirs with a slash."""
        # Connections are closed after each request: Lambda freezes the process between requests, often for longer than
        # the issuer keeps an idle connection open.
        headers = {"accept": "application/json", "connection": "close"}
        self._http = httpx.Client(transport=transport, timeout=_TIMEOUT, headers=headers)
        self._attempted_at = float("-inf")
        self._failure: PartnerError | None = None

    def fetch_data(self) -> jwt.PyJWKSet:
        """Return the keys; `PyJWKClient` calls this when its keys have expired, and for an unknown key id.

        Raises `PartnerError` when the issuer does not answer, and `jwt.PyJWKClientError` if it is too early to ask it
        for an unknown key id.
        """
        now, cache = time.monotonic(), self.jwk_set_cache
        # Expired keys stop every partner, so they are requested again soon; an unknown key id stops one token.
        pause = _UNKNOWN_KEY_SECONDS if cache and cache.get() else _FAILURE_SECONDS
        if now >= self._attempted_at + pause:
            self._attempted_at, self._failure = now, None
            try:
                return self._fetch()
            except PartnerError as error:
                self._failure = error
        if self._failure:
            raise PartnerError(f"the keys of {self._issuer} cannot be read: {self._failure}") from self._failure
        raise jwt.PyJWKClientError("the keys were read less than a minute ago")

    def _fetch(self) -> jwt.PyJWKSet:
        document = self._get_json(self.uri)
        if document.get("issuer") not in self.names:
            raise PartnerError(f"{self.uri}: `issuer` is not {self._issuer}")
        keys_url = document.get("jwks_uri")
        # Only an issuer that is itself read by http, as in tests, may publish its keys by http.
        is_https = isinstance(keys_url, str) and keys_url.startswith("https://")
        if not isinstance(keys_url, str) or (self.uri.startswith("https://") and not is_https):
            raise PartnerError(f"{self.uri}: `jwks_uri` is not an https URL")
        try:
            key_set = jwt.PyJWKSet.from_dict(self._get_json(keys_url))
        except jwt.PyJWTError as error:
            raise PartnerError(f"{keys_url}: not a set of keys: {error}") from error
        # This also drops `oct` keys, which are shared secrets: a published one protects nothing.
        key_set.keys = [key for key in key_set if key.algorithm_name in ALGORITHMS]
        if not key_set.keys:
            raise PartnerError(f"{keys_url}: no key is for {', '.join(ALGORITHMS)}")
        return key_set

    def _get_json(self, url: str) -> dict[str, Any]:
        try:
            response = self._http.get(url)
            if response.status_code != httpx.codes.OK:
                raise PartnerError(f"{url}: answered {response.status_code}, where 200 is expected")
            document = response.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise PartnerError(f"{url}: {str(error) or type(error).__name__}") from error
        if not isinstance(document, dict):
            raise PartnerError(f"{url}: a JSON object is expected")
        return document


@dataclass(frozen=True, kw_only=True)
class TokensByFormat:
    """Finds the grants of our own tokens and of an issuer's tokens; only the latter contain dots."""

    own: Tokens
    issued: Tokens

    def find(self, token: str) -> Grant | None:
        """Return the grant of the plain `token`. Raises as `Tokens.find` does."""
        return (self.issued if token.count(".") == _JWT_DOTS else self.own).find(token)
