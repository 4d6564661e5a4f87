"""Verdicts in the state table, whose other items `state_table` describes.

| pk | sk | attributes |
|---|---|---|
| `SOURCE#verdicts` | `hour#2026-01-01T15#AT#ID` | quality, reason, principal |
| `PIPELINE#verdicts` | `day#2026-01-01#AT#ID` | version, quality, reason, principal |

A pipeline may have the name of a source. One Query reads all verdicts about the periods of a range: there are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from slackwater.aws.dynamodb.state_items import StateItems, instant_key, item, parsed
from slackwater.state.verdicts import Subject, Verdict

_KINDS = {"source": "hour", "pipeline": "day"}


class DynamoVerdictTable(StateItems):
    """`slackwater.state.verdicts.VerdictTable` over DynamoDB."""

    def put_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Store verdicts."""
        self._put_all("store a verdict", [_item(verdict) for verdict in verdicts])

    def verdicts(self, subject: Subject, first: str, last: str) -> list[Verdict]:
        """Return all verdicts about the periods from `first` to `last`. The read is consistent."""
        kind = _KINDS[subject.of]
        # `$` is the character after `#`.
        found = self._items(
            f"{subject.name}#verdicts", f"{kind}#{first}#", f"{kind}#{last}$", what=f"the verdicts about {subject.name}"
        )
        return [_verdict(subject, each) for each in found]


def _item(verdict: Verdict) -> dict[str, Any]:
    period = datetime.fromisoformat(verdict.period if verdict.of == "pipeline" else f"{verdict.period}:00")
    return item(
        f"{verdict.name}#verdicts",
        f"{_KINDS[verdict.of]}#{verdict.period}#{instant_key(verdict.at)}#{verdict.id}",
        expires=period.replace(tzinfo=UTC),
        quality={"S": verdict.quality},
        reason={"S": verdict.reason},
        principal={"S": verdict.principal},
        **({} if verdict.version is None else {"version": {"N": str(verdict.version)}}),
    )


def _verdict(subject: Subject, found: dict[str, Any]) -> Verdict:
    _, period, at, id_ = found["sk"]["S"].split("#")
    return Verdict(
        of=subject.of,
        name=subject.name,
        period=period,
        version=int(found["version"]["N"]) if "version" in found else None,
        quality=found["quality"]["S"],
        reason=found["reason"]["S"],
        principal=found["principal"]["S"],
        at=parsed(at),
        id=id_,
    )
