"""The token table in DynamoDB: partition key `token_hash`. A plain token is seen once, when it is made."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from slackwater.aws.failures import translated
from slackwater.receiver.tokens import Token, token_hash

_KEPT_SECONDS = 60.0
"""A revoked token works no longer than this."""
_KEPT_TOKENS = 1000


class TokenTable:
    """`slackwater.receiver.tokens.Tokens` over DynamoDB; what it found is kept in memory for up to a minute."""

    def __init__(self, dynamodb: Any, table: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._clock = clock
        self._kept: dict[str, tuple[float, Token]] = {}

    def create(self, partner: str, sources: Iterable[str], *, expires_at: datetime | None = None) -> str:
        """Make a token for `partner`, allowed `sources` (`*`: all), and return it: only its hash is kept."""
        plain = secrets.token_urlsafe(32)
        item: dict[str, Any] = {
            "token_hash": {"S": token_hash(plain)},
            "partner": {"S": partner},
            "sources": {"SS": sorted(set(sources))},
            "created_at": {"S": datetime.now(UTC).isoformat()},
            "revoked": {"BOOL": False},
        }
        if expires_at is not None:
            item["expires_at"] = {"S": expires_at.isoformat()}
        with translated(f"keep a token for {partner}"):
            self._dynamodb.put_item(
                TableName=self._table, Item=item, ConditionExpression="attribute_not_exists(token_hash)"
            )
        return plain

    def find(self, token: str) -> Token | None:
        """Return what is kept of the plain `token`, valid or not; None when it was never given out."""
        key = token_hash(token)
        until, known = self._kept.get(key, (0.0, None))
        if known and self._clock() < until:
            return known
        found = self._read(key)
        if found is None:
            self._kept.pop(key, None)
            return None
        if len(self._kept) >= _KEPT_TOKENS:
            self._kept.clear()
        self._kept[key] = (self._clock() + _KEPT_SECONDS, found)
        return found

    def _read(self, key: str) -> Token | None:
        with translated("look up a token"):
            answer = self._dynamodb.get_item(TableName=self._table, Key={"token_hash": {"S": key}}, ConsistentRead=True)
        item = answer.get("Item")
        if not item:
            return None
        return Token(
            token_hash=key,
            partner=item["partner"]["S"],
            sources=frozenset(item["sources"]["SS"]),
            created_at=item["created_at"]["S"],
            expires_at=item["expires_at"]["S"] if "expires_at" in item else None,
            revoked=item.get("revoked", {}).get("BOOL", False),
        )
