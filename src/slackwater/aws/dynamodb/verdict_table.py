"""Verdicts in the state table, whose other items `state_table` describes.

| pk | sk | attributes |
|---|---|---|
| `SOURCE#verdicts` | `hour#2026-01-01T15#AT#ID` | quality, reason, principal, giver |
| `PIPELINE#verdicts` | `day#2026-01-01#AT#ID` | version, quality, reason, principal, giver |
| `#verdicts` | `source#SOURCE`, `pipeline#PIPELINE` | |

A pipeline may have the name of a source. One Query reads all verdicts about the periods of a range: there are few.
Another one reads which sources and pipelines have any.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from slackwater.aws.dynamodb.state_items import StateItems, instant_key, item, parsed
from slackwater.state.verdicts import Subject, Verdict

_KINDS = {"source": "hour", "pipeline": "day"}
_SUBJECTS = "#verdicts"
# An item of a subject is written again with each verdict: later ones may be about earlier periods.
_MARGIN = timedelta(days=2)


class DynamoVerdictTable(StateItems):
    """`slackwater.state.verdicts.VerdictTable` over DynamoDB."""

    def put_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Store verdicts."""
        # First whom they are about: no reader finds those that it does not look for.
        subjects = {Subject(verdict.of, verdict.name): _expires(verdict) + _MARGIN for verdict in verdicts}
        self._put_all(
            "store a verdict", [item(_SUBJECTS, "#".join(subject), expires=at) for subject, at in subjects.items()]
        )
        self._put_all("store a verdict", [_item(verdict) for verdict in verdicts])

    def verdicts(self, subject: Subject, first: str, last: str) -> list[Verdict]:
        """Return all verdicts about the periods from `first` to `last`. The read is consistent."""
        kind = _KINDS[subject.of]
        # `$` is the character after `#`.
        found = self._items(
            f"{subject.name}#verdicts", f"{kind}#{first}#", f"{kind}#{last}$", what=f"the verdicts about {subject.name}"
        )
        return [_verdict(subject, each) for each in found]

    def subjects(self) -> list[Subject]:
        """Return all sources and pipelines that have verdicts. The read is consistent."""
        found = self._items(_SUBJECTS, "pipeline#", "source$", what="the sources with verdicts")
        return [Subject(*each["sk"]["S"].split("#")) for each in found]


def _expires(verdict: Verdict) -> datetime:
    """Return the instant from which a verdict is kept for `KEPT`: a day of years ago may get one today."""
    # A day, or an hour of a day.
    period = datetime.fromisoformat(f"{verdict.period}:00" if "T" in verdict.period else verdict.period)
    return max(period.replace(tzinfo=UTC), verdict.at)


def _item(verdict: Verdict) -> dict[str, Any]:
    return item(
        f"{verdict.name}#verdicts",
        f"{_KINDS[verdict.of]}#{verdict.period}#{instant_key(verdict.at)}#{verdict.id}",
        expires=_expires(verdict),
        quality={"S": verdict.quality},
        reason={"S": verdict.reason},
        principal={"S": verdict.principal},
        **({"giver": {"S": verdict.giver}} if verdict.giver else {}),
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
        giver=found["giver"]["S"] if "giver" in found else "",
        at=parsed(at),
        id=id_,
    )
