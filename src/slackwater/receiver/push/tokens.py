"""Bearer tokens: a partner, the sources it may push to, and how long."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from slackwater.errors import InputError

ALL_SOURCES = "*"
"""In the place of a source's name: all that take pushes, those to come included."""
MAX_VALID = 2
"""Valid tokens of one partner: the one in use and, while it is exchanged, the next."""
_PARTNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEPT_SECONDS = 30.0
_KEPT_TOKENS = 1000


class Grant(BaseModel):
    """What a bearer token opens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partner: str
    sources: frozenset[str]
    """Names of sources, or `*` for all."""
    expires_at: datetime | None = None

    def valid(self, now: datetime) -> bool:
        """Whether it opens anything at that time."""
        return self.expires_at is None or now < self.expires_at

    def allows(self, source: str) -> bool:
        """Whether the partner may push to that source."""
        return ALL_SOURCES in self.sources or source in self.sources


class TokenState(StrEnum):
    """What became of a token."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Token(Grant):
    """What is kept of a token of ours: all but the token itself."""

    token_hash: str
    created_at: datetime
    revoked: bool = False

    @property
    def id(self) -> str:
        """What it is called by; who knows the id cannot push with it."""
        return self.token_hash[:12]

    def valid(self, now: datetime) -> bool:
        """Whether it opens anything at that time."""
        return not self.revoked and super().valid(now)

    def state(self, now: datetime) -> TokenState:
        """Return what has become of it by that time."""
        if self.revoked:
            return TokenState.REVOKED
        return TokenState.VALID if self.valid(now) else TokenState.EXPIRED


@dataclass(frozen=True, kw_only=True)
class NewToken:
    """A token as it is handed out."""

    plain: str = field(repr=False)
    """What the partner sends; it is stored nowhere."""
    token: Token


class Tokens(Protocol):
    """Who knows tokens."""

    def find(self, token: str) -> Grant | None:
        """Return what the plain `token` opens, or once opened; None when it was never given out.

        Raises `CloudError` or `PartnerError` when whoever would know does not answer.
        """


class KeptTokens:
    """Keeps in memory what was found, for half a minute: so long at most does a revoked token go on working."""

    def __init__(self, tokens: Tokens, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = tokens
        self._clock = clock
        self._kept: dict[str, tuple[float, Grant]] = {}

    def find(self, token: str) -> Grant | None:
        """Return what the plain `token` opens, or once opened; one that was never given out is asked for each time."""
        key = token_hash(token)
        until, known = self._kept.get(key, (0.0, None))
        if known and self._clock() < until:
            return known
        found = self._tokens.find(token)
        if found is None:
            return None
        if len(self._kept) >= _KEPT_TOKENS:
            self._kept.clear()
        self._kept[key] = (self._clock() + _KEPT_SECONDS, found)
        return found


def token_hash(token: str) -> str:
    """Return what a plain token is kept by: its SHA-256, hex.

    A token is found by its hash as a key, and never compared: how long that takes tells nothing of the tokens there
    are. It is random and long, so its hash needs no salt and no slow function.
    """
    return hashlib.sha256(token.encode()).hexdigest()


def new_token(partner: str, sources: Iterable[str], *, now: datetime, expires_at: datetime | None = None) -> NewToken:
    """Return a token of 256 random bits. It has no dots, which tells it from a JSON Web Token."""
    plain = secrets.token_urlsafe(32)
    token = Token(
        token_hash=token_hash(plain),
        partner=partner,
        sources=frozenset(sources),
        created_at=now,
        expires_at=expires_at,
    )
    return NewToken(plain=plain, token=token)


def partner_name(text: str) -> str:
    """Return a partner's name as it was given. Raises `InputError`."""
    if not _PARTNER.fullmatch(text):
        raise InputError(
            f"partner: {text!r} is not a name: 1 to 63 letters, digits, '.', '_' and '-' are expected, the first of "
            "them a letter or a digit, such as acme or acme-eu"
        )
    return text
