"""Bearer tokens: which partner may push to which sources, and until when."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from slackwater.errors import InputError
from slackwater.model import Model

ALL_SOURCES = "*"
"""Instead of a source's name: all sources that accept pushes, also those added later."""
MAX_VALID = 2
"""Valid tokens of one partner: the one in use and, while a partner changes over, the next."""
# Starts with a letter or a digit, because the command line reads a name with a leading "-" as an option.
_PARTNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# How long a grant stays in memory, so also how long a revoked token works at most.
_CACHE_SECONDS = 30.0
# Bounds the memory of a process.
_CACHE_TOKENS = 1000


class Grant(Model):
    """What a bearer token allows."""

    partner: str
    sources: frozenset[str]
    """Names of sources, or `*` for all sources."""
    expires_at: datetime | None = None
    """None: the token never expires."""

    def valid(self, now: datetime) -> bool:
        """Return whether the token is valid at the time `now`."""
        return self.expires_at is None or now < self.expires_at

    def allows(self, source: str) -> bool:
        """Return whether the partner may push to the source."""
        return ALL_SOURCES in self.sources or source in self.sources


class Token(Grant):
    """What is stored of one of our own tokens: everything but the token itself."""

    token_hash: str
    """See `token_hash`."""
    created_at: datetime
    revoked: bool = False

    @property
    def id(self) -> str:
        """A name for the token, for operators: the first 12 digits of its hash, with which nobody can push."""
        return self.token_hash[:12]

    def valid(self, now: datetime) -> bool:
        """Return whether the token is valid at the time `now`."""
        return not self.revoked and super().valid(now)

    def state(self, now: datetime) -> Literal["valid", "expired", "revoked"]:
        """Return the state of the token at the time `now`."""
        return "revoked" if self.revoked else "valid" if self.valid(now) else "expired"


@dataclass(frozen=True, kw_only=True)
class NewToken:
    """A new token, with the plain string that a partner gets once."""

    plain: str = field(repr=False)
    """What the partner sends; it is never stored."""
    token: Token


class Tokens(Protocol):
    """Finds the grants of tokens."""

    def find(self, token: str) -> Grant | None:
        """Return the grant of the plain `token`; None for an unknown token. The grant may be expired or revoked.

        Raises `CloudError` or `PartnerError` when the table or the issuer of tokens does not answer.
        """


class CachedTokens:
    """Looks tokens up in `tokens`, and keeps their grants in memory for half a minute."""

    def __init__(self, tokens: Tokens, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Use `clock` as the time in seconds; only differences matter."""
        self._tokens = tokens
        self._clock = clock
        # Time at which the entry expires, and grant, by the token's hash: memory holds no plain tokens.
        self._entries: dict[str, tuple[float, Grant]] = {}

    def find(self, token: str) -> Grant | None:
        """Return the grant of the plain `token`. Raises as `Tokens.find` does."""
        key = token_hash(token)
        expiry, grant = self._entries.get(key, (0.0, None))
        if grant and self._clock() < expiry:
            return grant
        grant = self._tokens.find(token)
        # Unknown tokens are not kept: a new token works immediately, and invented tokens cannot fill the memory.
        if grant is None:
            return None
        if len(self._entries) >= _CACHE_TOKENS:
            self._entries.clear()
        self._entries[key] = (self._clock() + _CACHE_SECONDS, grant)
        return grant


def token_hash(token: str) -> str:
    """Return the hash under which a plain token is stored: its SHA-256 in hex."""
    # A plain SHA-256 is enough: tokens have 256 random bits, so nobody can guess them from their hashes, and salt or a
    # slow hash function would add nothing. The hash is looked up as a key and never compared digit by digit, so the
    # response time reveals nothing about other tokens.
    return hashlib.sha256(token.encode()).hexdigest()


def new_token(partner: str, sources: Iterable[str], *, now: datetime, expires_at: datetime | None = None) -> NewToken:
    """Return a new token of 256 random bits for a partner; the caller stores `NewToken.token`.

    `sources` are names of sources, or `*`. Unlike a JSON Web Token, the plain token contains no dots.
    """
    plain = secrets.token_urlsafe(32)
    token = Token(
        token_hash=token_hash(plain),
        partner=partner,
        sources=frozenset(sources),
        created_at=now,
        expires_at=expires_at,
    )
    return NewToken(plain=plain, token=token)


def check_partner_name(name: str) -> str:
    """Return the partner's name unchanged. Raises `InputError` when it is not valid."""
    if not _PARTNER.fullmatch(name):
        raise InputError(
            f"partner: {name!r} is not a valid name: use 1 to 63 letters, digits, '.', '_' and '-', starting with a "
            "letter or a digit, such as acme or acme-eu"
        )
    return name
