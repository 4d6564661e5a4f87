"""The token table in DynamoDB: partition key `token_hash`.

One item a token, under its hash, holds all that is known of it: whatever works is listed, and what is revoked or has
expired takes no room. Beside them each partner has an item `partner#NAME` with nothing but a `revision`: it is a lock,
by which two that make tokens of one partner at the same time learn of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated
from slackwater.errors import CloudError, InputError
from slackwater.receiver.push.tokens import MAX_VALID, NewToken, Token, new_token, token_hash

_ATTEMPTS = 10
_OVERTAKEN = frozenset({"ConditionalCheckFailed", "TransactionConflict"})


class TokenTable:
    """`slackwater.receiver.push.tokens.Tokens` over DynamoDB, and what an operator does with them."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def find(self, token: str) -> Token | None:
        """Return what is kept of the plain `token`, valid or not; None when it was never given out."""
        with translated("look up a token"):
            answer = self._dynamodb.get_item(TableName=self._table, Key=_key(token_hash(token)), ConsistentRead=True)
        return _token(answer["Item"]) if "Item" in answer else None

    def all(self) -> list[Token]:
        """Return every token, valid or not, by partner and then by age, the oldest first."""
        with translated("list the tokens"):
            pages = self._dynamodb.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
            found = [_token(item) for page in pages for item in page["Items"] if "partner" in item]
        return sorted(found, key=lambda token: (token.partner, token.created_at, token.id))

    def create(
        self,
        partner: str,
        sources: Iterable[str],
        *,
        expires_at: datetime | None = None,
        instead_of_oldest: bool = False,
    ) -> NewToken:
        """Make a token of `partner` for `sources` (`*`: all).

        Of its valid tokens there are never more than two, however many are made at once: a third raises `InputError`,
        or `instead_of_oldest` revokes the oldest. All is written in one transaction: should this process end before it
        has handed out the token, either nothing was done, or the token is listed and can be revoked.
        """
        sources = sorted(set(sources))
        for _ in range(_ATTEMPTS):
            # The lock is read before the tokens: a token that is not among them was made since, and moved the lock.
            revision = self._revision(partner)
            now = datetime.now(UTC)
            valid = [token for token in self.all() if token.partner == partner and token.valid(now)]
            surplus = valid[: max(0, len(valid) + 1 - MAX_VALID)]
            if surplus and not instead_of_oldest:
                raise _too_many(partner, valid)
            new = new_token(partner, sources, now=now, expires_at=expires_at)
            if self._write(new.token, revision, surplus):
                return new
        raise CloudError(f"could not keep a token of {partner}: others were made at the same time; try again")

    def revoke(self, token: Token) -> None:
        """Let the token open nothing more; where it was found lately, it works for half a minute longer."""
        with translated(f"revoke the token {token.id} of {token.partner}"):
            self._dynamodb.update_item(**self._revocation(token))

    def _revision(self, partner: str) -> int:
        with translated(f"look up the tokens of {partner}"):
            answer = self._dynamodb.get_item(TableName=self._table, Key=_key(_lock(partner)), ConsistentRead=True)
        return int(answer["Item"]["revision"]["N"]) if "Item" in answer else 0

    def _write(self, token: Token, revision: int, surplus: Sequence[Token]) -> bool:
        """Write the token, the lock's next revision and the revocations, or, if someone was faster, nothing."""
        actions = [
            {"Put": self._put(_item(token), "attribute_not_exists(token_hash)")},
            {"Put": self._next_revision(token.partner, revision)},
            *({"Update": self._revocation(old)} for old in surplus),
        ]
        with translated(f"keep a token of {token.partner}"):
            try:
                self._dynamodb.transact_write_items(TransactItems=actions)
            except ClientError as error:
                if _OVERTAKEN.isdisjoint(_reasons(error)):
                    raise
                return False
        return True

    def _next_revision(self, partner: str, revision: int) -> dict[str, Any]:
        item = {**_key(_lock(partner)), "revision": {"N": str(revision + 1)}}
        if revision == 0:
            return self._put(item, "attribute_not_exists(token_hash)")
        return {**self._put(item, "revision = :seen"), "ExpressionAttributeValues": {":seen": {"N": str(revision)}}}

    def _put(self, item: dict[str, Any], condition: str) -> dict[str, Any]:
        return {"TableName": self._table, "Item": item, "ConditionExpression": condition}

    def _revocation(self, token: Token) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "Key": _key(token.token_hash),
            "UpdateExpression": "SET revoked = :yes",
            "ConditionExpression": "attribute_exists(token_hash)",
            "ExpressionAttributeValues": {":yes": {"BOOL": True}},
        }


def _too_many(partner: str, valid: Sequence[Token]) -> InputError:
    ids = " and ".join(token.id for token in valid)
    oldest = f"slackwater token revoke {valid[0].id}"
    return InputError(
        f"{partner} has {len(valid)} valid tokens, {ids}, and may have {MAX_VALID}: revoke one that is no longer used, "
        f"such as the oldest ({oldest})"
    )


def _reasons(error: ClientError) -> list[str]:
    """Why a transaction was cancelled, action by action."""
    if code_of(error) != "TransactionCanceledException":
        return []
    return [str(reason.get("Code")) for reason in error.response.get("CancellationReasons", [])]


def _lock(partner: str) -> str:
    return f"partner#{partner}"


def _key(value: str) -> dict[str, dict[str, str]]:
    return {"token_hash": {"S": value}}


def _item(token: Token) -> dict[str, Any]:
    item: dict[str, Any] = {
        **_key(token.token_hash),
        "partner": {"S": token.partner},
        "sources": {"SS": sorted(token.sources)},
        "created_at": {"S": token.created_at.isoformat()},
        "revoked": {"BOOL": token.revoked},
    }
    if token.expires_at is not None:
        item["expires_at"] = {"S": token.expires_at.isoformat()}
    return item


def _token(item: dict[str, Any]) -> Token:
    return Token(
        token_hash=item["token_hash"]["S"],
        partner=item["partner"]["S"],
        sources=frozenset(item["sources"]["SS"]),
        created_at=item["created_at"]["S"],
        expires_at=item["expires_at"]["S"] if "expires_at" in item else None,
        revoked=item.get("revoked", {}).get("BOOL", False),
    )
