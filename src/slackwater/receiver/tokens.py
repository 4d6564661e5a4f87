"""Bearer tokens: a partner, the sources it may push to, and how long."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Protocol

from pydantic import BaseModel, ConfigDict

ALL_SOURCES = "*"


class Token(BaseModel):
    """What is kept of a token: all but the token itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token_hash: str
    partner: str
    sources: frozenset[str]
    """Names of sources, or `*` for all."""
    created_at: datetime
    expires_at: datetime | None = None
    revoked: bool = False

    def valid(self, now: datetime) -> bool:
        """Whether the token opens anything at that time."""
        return not self.revoked and (self.expires_at is None or now < self.expires_at)

    def allows(self, source: str) -> bool:
        """Whether the token's partner may push to that source."""
        return ALL_SOURCES in self.sources or source in self.sources


class Tokens(Protocol):
    """Where tokens are kept."""

    def find(self, token: str) -> Token | None:
        """Return what is kept of the plain `token`, valid or not; None when it was never given out."""


def token_hash(token: str) -> str:
    """Return what a plain token is kept by: its SHA-256, hex."""
    return hashlib.sha256(token.encode()).hexdigest()
