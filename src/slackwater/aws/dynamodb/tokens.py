"""The token table in DynamoDB: partition key `token_hash`.

Each token is one item, under its hash. Each partner has another item, `partner#NAME`, which only holds a `revision`: an
optimistic lock. When two processes create tokens of one partner at the same time, the second write fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import cancellation_reasons, translated
from slackwater.errors import CloudError, InputError
from slackwater.receiver.push.tokens import MAX_VALID, NewToken, Token, new_token, token_hash

_ATTEMPTS = 10
# Reasons of a cancelled transaction: another process has written the item, or is writing it.
_LOST_RACE = frozenset({"ConditionalCheckFailed", "TransactionConflict"})


class TokenTable:
    """`slackwater.receiver.push.tokens.Tokens` over DynamoDB, with the operators' commands."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def find(self, token: str) -> Token | None:
        """Return the stored record of the plain `token`, valid or not; None for an unknown token."""
        with translated("look up a token"):
            response = self._dynamodb.get_item(TableName=self._table, Key=_key(token_hash(token)), ConsistentRead=True)
        return _token(response["Item"]) if "Item" in response else None

    def all(self) -> list[Token]:
        """Return every token, valid or not, sorted by partner and age, oldest first."""
        # A scan, because the table is small: a few tokens for each partner.
        with translated("list the tokens"):
            pages = self._dynamodb.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
            tokens = [_token(item) for page in pages for item in page["Items"] if "partner" in item]
        return sorted(tokens, key=lambda token: (token.partner, token.created_at, token.id))

    def create(
        self,
        partner: str,
        sources: Iterable[str],
        *,
        expires_at: datetime | None = None,
        instead_of_oldest: bool = False,
    ) -> NewToken:
        """Create a token of `partner` for `sources` (`*` for all of them).

        A partner has up to two valid tokens, however many are created at the same time: a third raises `InputError`,
        unless `instead_of_oldest` revokes the oldest. Raises `CloudError` when other processes keep creating tokens of
        the partner.

        One transaction writes everything: if this process ends before it returns the token, either nothing was
        written, or the token is listed and can be revoked.
        """
        sources = sorted(set(sources))
        for _ in range(_ATTEMPTS):
            # Read before the tokens: a token created after this read has changed the revision, and the write fails.
            revision = self._revision(partner)
            now = datetime.now(UTC)
            valid = [token for token in self.all() if token.partner == partner and token.valid(now)]
            surplus = valid[: max(0, len(valid) + 1 - MAX_VALID)]
            if surplus and not instead_of_oldest:
                ids = " and ".join(token.id for token in valid)
                raise InputError(
                    f"{partner} has {len(valid)} valid tokens, {ids}, and may have {MAX_VALID}: "
                    f"revoke one that is no longer used, such as the oldest (slackwater token revoke {valid[0].id})"
                )
            new = new_token(partner, sources, now=now, expires_at=expires_at)
            if self._write(new.token, revision, surplus):
                return new
        raise CloudError(f"could not store a token of {partner}: others were created at the same time: try again")

    def revoke(self, token: Token) -> None:
        """Revoke the token. Processes that have it in their cache accept it for up to half a minute longer."""
        with translated(f"revoke the token {token.id} of {token.partner}"):
            self._dynamodb.update_item(**self._revocation(token))

    def _revision(self, partner: str) -> int:
        with translated(f"look up the tokens of {partner}"):
            response = self._dynamodb.get_item(TableName=self._table, Key=_key(_lock(partner)), ConsistentRead=True)
        return int(response["Item"]["revision"]["N"]) if "Item" in response else 0

    def _write(self, token: Token, revision: int, surplus: Sequence[Token]) -> bool:
        """Write the token, the next revision and the revocations; return False if another process was faster."""
        # The lock's revision is a condition of the same transaction: a token written since it was read makes it fail.
        is_new = "attribute_not_exists(token_hash)"
        lock = {**_key(_lock(token.partner)), "revision": {"N": str(revision + 1)}}
        next_revision = {"TableName": self._table, "Item": lock, "ConditionExpression": is_new}
        if revision:
            next_revision["ConditionExpression"] = "revision = :read"
            next_revision["ExpressionAttributeValues"] = {":read": {"N": str(revision)}}
        actions = [
            {"Put": {"TableName": self._table, "Item": _item(token), "ConditionExpression": is_new}},
            {"Put": next_revision},
            *({"Update": self._revocation(old)} for old in surplus),
        ]
        with translated(f"store a token of {token.partner}"):
            try:
                self._dynamodb.transact_write_items(TransactItems=actions)
            except ClientError as error:
                if cancellation_reasons(error) & _LOST_RACE:
                    return False
                raise
        return True

    def _revocation(self, token: Token) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "Key": _key(token.token_hash),
            "UpdateExpression": "SET revoked = :yes",
            "ConditionExpression": "attribute_exists(token_hash)",
            "ExpressionAttributeValues": {":yes": {"BOOL": True}},
        }


def _lock(partner: str) -> str:
    """Return the key of a partner's lock. No token has it: a hash contains no `#`."""
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
