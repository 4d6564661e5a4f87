"""JSON Web Tokens of an OIDC issuer, verified with the issuer's public keys; none of them is stored.

The claim `slackwater_sources`, an array of names or `*`, says which sources a token is for; the claim
`slackwater_partner`, or else `sub`, names the partner. We cannot revoke such a token, so it works until it expires;
issuers let theirs expire after minutes or hours.
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

# Signatures with a private key that only the issuer has. `none` and every shared-secret algorithm are refused.
ALGORITHMS = ("RS256", "ES256", "EdDSA")
# How far the issuer's clock may differ from ours.
LEEWAY_SECONDS = 30
_CACHE_SECONDS = 600.0
# Between two requests because of unknown key ids: invented key ids cannot make us hammer the issuer.
_UNKNOWN_KEY_SECONDS = 60.0
# Between two requests while the issuer does not answer.
_FAILURE_SECONDS = 10.0
_TIMEOUT = httpx.Timeout(5.0)
# Three parts, separated by dots, make a JSON Web Token.
_JWT_DOTS = 2
# A subject as OpenID Connect defines it: at most 255 ASCII characters.
_PARTNER = re.compile(r"[ -~]{1,255}")


class JwtTokens:
    """Finds the grants of an issuer's tokens."""

    def __init__(self, keys: IssuerKeys, *, audience: str, refused: Callable[[str], None]) -> None:
        """Accept tokens for `audience`; `refused` is called with the reason, without the token, for each other one."""
        self._keys = keys
        self._audience = audience
        self._refused = refused

    def find(self, token: str) -> Grant | None:
        """Return the grant of the token; None when anything is wrong with it.

        Raises `PartnerError` when the issuer does not answer, so that nothing can be said about the token.
        """
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            if key_id is None:
                raise jwt.InvalidTokenError("its header names no key (kid)")
            key = self._keys.find(key_id)
            if key is None:
                raise jwt.InvalidTokenError("the issuer has no key with that kid")
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._keys.names,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
            return grant_of(claims)
        except jwt.PyJWTError as error:
            self._refused(str(error))
            return None


def grant_of(claims: Mapping[str, Any]) -> Grant:
    """Return the grant that verified claims describe. Raises `jwt.InvalidTokenError`."""
    try:
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


class IssuerKeys:
    """An issuer's public keys, read from its discovery document and kept for ten minutes.

    An unknown key id makes it read them again, at most once a minute.
    """

    def __init__(
        self,
        issuer: str,
        *,
        transport: httpx.BaseTransport,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the keys of `issuer`, a URL without a trailing slash, through `transport`."""
        self.names = (issuer, f"{issuer}/")
        """The names that the issuer may give itself: some end with a slash."""
        # No connection stays open: it would have to outlast the hours for which a Lambda function may be frozen.
        headers = {"accept": "application/json", "connection": "close"}
        self._http = httpx.Client(transport=transport, timeout=_TIMEOUT, headers=headers)
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = self._attempted_at = float("-inf")
        self._failure: PartnerError | None = None

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return the key of that id; None when the issuer has none. Raises `PartnerError` if it does not answer."""
        now = self._clock()
        is_expired = now >= self._fetched_at + _CACHE_SECONDS
        if is_expired:
            self._keys = {}
        pause = _FAILURE_SECONDS if is_expired else _UNKNOWN_KEY_SECONDS
        if key_id not in self._keys and now >= self._attempted_at + pause:
            self._attempted_at = now
            try:
                self._keys = self._fetch()
            except PartnerError as error:
                self._failure = error
            else:
                self._fetched_at, self._failure = now, None
        if key_id not in self._keys and self._failure:
            raise PartnerError(f"the keys of {self.names[0]} cannot be read: {self._failure}") from self._failure
        return self._keys.get(key_id)

    def _fetch(self) -> dict[str, jwt.PyJWK]:
        discovery_url = f"{self.names[0]}/.well-known/openid-configuration"
        document = self._get_json(discovery_url)
        if document.get("issuer") not in self.names:
            raise PartnerError(f"{discovery_url}: `issuer` is not {self.names[0]}")
        keys_url = document.get("jwks_uri")
        # Only an issuer that is itself read by http, as in tests, may publish its keys by http.
        is_https = isinstance(keys_url, str) and keys_url.startswith("https://")
        if not isinstance(keys_url, str) or (discovery_url.startswith("https://") and not is_https):
            raise PartnerError(f"{discovery_url}: `jwks_uri` is not an https URL")
        try:
            key_set = jwt.PyJWKSet.from_dict(self._get_json(keys_url))
        except jwt.PyJWTError as error:
            raise PartnerError(f"{keys_url}: not a set of keys: {error}") from error
        # The algorithms leave out an `oct` key: if an issuer published one, it would be a secret that everyone knows.
        return {
            key.key_id: key
            for key in key_set
            if key.key_id and key.algorithm_name in ALGORITHMS and key.public_key_use != "enc"
        }

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
    """Finds the grants of our own tokens and of an issuer's tokens, which have different formats."""

    own: Tokens
    issued: Tokens

    def find(self, token: str) -> Grant | None:
        """Return the grant of the plain `token`. Raises as `Tokens.find` does."""
        return (self.issued if token.count(".") == _JWT_DOTS else self.own).find(token)
