"""JSON Web Tokens of an OIDC issuer: checked by the issuer's public keys, and nothing of them is kept.

Which sources a token opens is its claim `slackwater_sources`, an array of names or `*`; whose it is, its claim
`slackwater_partner`, or else `sub`. Nobody but the issuer can take a token back, so that it works until it expires:
issuers make theirs for minutes or hours.
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

ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""Signatures by a private key that is the issuer's alone; `none` and all that have a shared secret are refused."""
LEEWAY_SECONDS = 30
"""By how much the issuer's clock may differ from ours."""
_KEPT_SECONDS = 600.0
_UNKNOWN_KEY_SECONDS = 60.0
"""Between two requests for the sake of unknown keys: who invents key ids cannot make us hammer the issuer."""
_FAILED_SECONDS = 10.0
"""Between two requests while the issuer does not answer."""
_TIMEOUT = httpx.Timeout(5.0)
_DOTS = 2
_PARTNER = re.compile(r"[ -~]{1,255}")
"""A subject as OIDC has it."""


class JwtTokens:
    """`slackwater.receiver.push.tokens.Tokens` by an issuer's word."""

    def __init__(self, keys: IssuerKeys, *, audience: str, refused: Callable[[str], None]) -> None:
        """Take tokens made for `audience`; `refused` is told why one is not taken, in words without the token."""
        self._keys = keys
        self._audience = audience
        self._refused = refused

    def find(self, token: str) -> Grant | None:
        """Return what the token opens; None when anything is wrong with it.

        Raises `PartnerError` when that cannot be told because the issuer does not answer.
        """
        try:
            return _grant(self._claims(token))
        except jwt.PyJWTError as defect:
            self._refused(str(defect))
            return None

    def _claims(self, token: str) -> Mapping[str, Any]:
        kid = jwt.get_unverified_header(token).get("kid")
        if kid is None:
            raise jwt.InvalidTokenError("its header names no key (kid)")
        key = self._keys.find(kid)
        if key is None:
            raise jwt.InvalidTokenError("the issuer has no key of that kid")
        return jwt.decode(
            token,
            key,
            algorithms=ALGORITHMS,
            audience=self._audience,
            issuer=self._keys.names,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )


class IssuerKeys:
    """An issuer's public keys, found through its discovery document and kept for ten minutes.

    For a key that is not among them the issuer is asked again, once a minute at most.
    """

    def __init__(
        self,
        issuer: str,
        *,
        transport: httpx.BaseTransport,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask `issuer`, an address without a slash at its end, through `transport`."""
        self.names = (issuer, f"{issuer}/")
        """What the issuer may call itself: some write a slash at the end."""
        # A connection that is kept would have to outlast the hours for which a function may be frozen.
        headers = {"accept": "application/json", "connection": "close"}
        self._http = httpx.Client(transport=transport, timeout=_TIMEOUT, headers=headers)
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = self._asked_at = float("-inf")
        self._failure: PartnerError | None = None

    def find(self, kid: str) -> jwt.PyJWK | None:
        """Return the key of that id; None when the issuer has none. Raises `PartnerError` if it does not answer."""
        now = self._clock()
        if now >= self._fetched_at + _KEPT_SECONDS:
            self._keys = {}
            self._ask(now, pause=_FAILED_SECONDS)
        elif kid not in self._keys:
            self._ask(now, pause=_UNKNOWN_KEY_SECONDS)
        if kid not in self._keys and self._failure:
            raise PartnerError(f"the keys of {self.names[0]} are not to be had: {self._failure}") from self._failure
        return self._keys.get(kid)

    def _ask(self, now: float, *, pause: float) -> None:
        """Ask the issuer, unless it was asked less than `pause` seconds ago."""
        if now < self._asked_at + pause:
            return
        self._asked_at = now
        try:
            self._keys = self._fetch()
        except PartnerError as failure:
            self._failure = failure
        else:
            self._fetched_at, self._failure = now, None

    def _fetch(self) -> dict[str, jwt.PyJWK]:
        discovery = f"{self.names[0]}/.well-known/openid-configuration"
        document = self._document(discovery)
        if document.get("issuer") not in self.names:
            raise PartnerError(f"{discovery}: `issuer` is not {self.names[0]}")
        address = document.get("jwks_uri")
        if not isinstance(address, str) or _is_encrypted(discovery) > _is_encrypted(address):
            raise PartnerError(f"{discovery}: `jwks_uri` is not an https address")
        try:
            published = jwt.PyJWKSet.from_dict(self._document(address))
        except jwt.PyJWTError as error:
            raise PartnerError(f"{address}: not a set of keys: {error}") from error
        return {key.key_id: key for key in published if key.key_id and _is_for_signatures(key)}

    def _document(self, address: str) -> dict[str, Any]:
        try:
            answer = self._http.get(address)
            if answer.status_code != httpx.codes.OK:
                raise PartnerError(f"{address}: answered {answer.status_code}, where 200 is expected")
            document = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise PartnerError(f"{address}: {str(error) or type(error).__name__}") from error
        if not isinstance(document, dict):
            raise PartnerError(f"{address}: a JSON object is expected")
        return document


@dataclass(frozen=True, kw_only=True)
class TokensByForm:
    """Our own tokens and those of an issuer, told apart by their form: three parts make a JSON Web Token."""

    own: Tokens
    issued: Tokens

    def find(self, token: str) -> Grant | None:
        """Return what the plain `token` opens, as the one who gives out such tokens says."""
        return (self.issued if token.count(".") == _DOTS else self.own).find(token)


def _is_encrypted(address: str) -> bool:
    return address.startswith("https://")


def _is_for_signatures(key: jwt.PyJWK) -> bool:
    # An `oct` key, were it published, would be a secret that everyone knows.
    return key.algorithm_name in ALGORITHMS and key.public_key_use != "enc"


def _grant(claims: Mapping[str, Any]) -> Grant:
    """Return what verified claims say. Raises `jwt.InvalidTokenError`."""
    try:
        expires_at = datetime.fromtimestamp(int(claims["exp"]) + LEEWAY_SECONDS, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise jwt.InvalidTokenError("its claim exp is no time") from error
    return Grant(partner=_partner(claims), sources=_sources(claims), expires_at=expires_at)


def _sources(claims: Mapping[str, Any]) -> frozenset[str]:
    """Without the claim the token opens nothing, which is no defect of it."""
    found = claims.get("slackwater_sources", [])
    if found == ALL_SOURCES:
        return frozenset({ALL_SOURCES})
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise jwt.InvalidTokenError("its claim slackwater_sources is neither an array of names nor *")
    return frozenset(found)


def _partner(claims: Mapping[str, Any]) -> str:
    found = claims.get("slackwater_partner", claims.get("sub"))
    if not isinstance(found, str) or not _PARTNER.fullmatch(found):
        raise jwt.InvalidTokenError("its claim slackwater_partner, or else sub, is not a text of 1 to 255 characters")
    return found
