"""What the metrics count of new rows of the ledger.

A commit adds each row once, whatever is repeated or runs at the same time, so its function counts each row once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slackwater.late.decision import LateDecision
from slackwater.late.entry import DEFINITION, OLDER, InputKey, LedgerEntry
from slackwater.metrics import Metric
from slackwater.runs.inputs.difference import Change

_HANDLED = (LateDecision.RERUN, LateDecision.DEFER, LateDecision.HOLD)


def counts_of(known: Iterable[LedgerEntry], new: Iterable[LedgerEntry]) -> Mapping[Metric, int]:
    """Return the counts of the rows that a commit has added to the `known` ones, those of the same days.

    A day that runs again counts once for each run that has published it, if a check has decided on the run. The bytes
    of late data count when it gets its first row with another decision than `ignore`, and an object of a day before the
    window when it gets its first row with this rule.
    """
    new, known = list(new), list(known)
    reruns = {(entry.period, entry.attempt) for entry in new if entry.attempt is not None and entry.execution}
    handled = {(entry.period, entry.key) for entry in known if entry.decision in _HANDLED}
    sizes = {
        (entry.period, entry.key): entry.bytes
        for entry in new
        if entry.decision in _HANDLED and entry.change not in {Change.REMOVED, DEFINITION}
    }
    return {
        Metric.DAYS_RERUN: len(reruns),
        Metric.LATE_BYTES: sum(size for key, size in sizes.items() if key not in handled),
        Metric.LATE_OBJECTS_OLDER: len(_older(new) - _older(known)),
    }


def _older(entries: Iterable[LedgerEntry]) -> set[tuple[str, InputKey]]:
    return {(entry.period, entry.key) for entry in entries if entry.rule == OLDER and entry.change != Change.REMOVED}
