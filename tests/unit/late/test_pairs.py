"""The layout of the stored comparisons."""

from __future__ import annotations

import pytest

from slackwater.late.changes.pairs import comparisons_prefix, pair_prefix, stored_pairs
from tests.fakes_runs import DictStore

pytestmark = pytest.mark.unit

DAY = comparisons_prefix("exchange", "p", "2013-03-10")


def test_pairs_are_sorted_by_number_and_have_their_objects():
    store = DictStore()
    prefixes = [pair_prefix(DAY, before=before, after=after) for before, after in ((9, 10), (1, 10), (1, 2))]
    uris = [f"{prefix}{name}" for prefix in prefixes for name in ("pair.json", "jobs/claim-0000.json")]
    for uri in uris:
        store.put(uri, b"{}")
    pairs = stored_pairs(store, DAY)
    assert [(pair.before, pair.after) for pair in pairs] == [(1, 2), (1, 10), (9, 10)]
    assert [pair.prefix for pair in pairs] == prefixes[::-1]
    assert [sorted(pair.uris) for pair in pairs] == [sorted(uris[index : index + 2]) for index in (4, 2, 0)]


def test_other_objects_are_no_pairs():
    store = DictStore()
    for name in ("1-2", "note.txt", "1-x/pair.json", "-2/pair.json", "1-2-3/pair.json"):
        store.put(f"{DAY}{name}", b"{}")
    assert stored_pairs(store, DAY) == stored_pairs(store, comparisons_prefix("exchange", "p", "2013-03-1")) == []
