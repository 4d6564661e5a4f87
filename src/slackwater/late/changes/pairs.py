"""Where the comparisons of a day are stored: everything about a pair of versions is under a prefix of its own.

The prefixes are `comparisons/<pipeline>/<date>/<before>-<after>/` in the exchange bucket, with the numbers of the
attempts that published the versions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slackwater.storage import ObjectStore

_FOLDER = re.compile(r"(\d+)-(\d+)/")


class StoredPair(NamedTuple):
    """Two versions of a day of which something is stored."""

    after: int
    """The attempt that published the later version."""
    before: int
    prefix: str
    """URI prefix of everything about the pair."""
    uris: frozenset[str]
    """The objects under it."""


def comparisons_prefix(exchange_bucket: str, pipeline: str, date: str) -> str:
    """Return the URI prefix of all pairs of a day, an ISO date."""
    return f"s3://{exchange_bucket}/comparisons/{pipeline}/{date}/"


def pair_prefix(comparisons: str, *, before: int, after: int) -> str:
    """Return the URI prefix of a pair of versions. `comparisons` is that of its day.

    >>> pair_prefix("s3://exchange/comparisons/daily_delays/2013-11-03/", before=1, after=2)
    's3://exchange/comparisons/daily_delays/2013-11-03/1-2/'
    """
    return f"{comparisons}{before}-{after}/"


def stored_pairs(store: ObjectStore, comparisons: str) -> list[StoredPair]:
    """Return the pairs of a day, in order of the later and then of the earlier version, with one listing.

    `comparisons` is `comparisons_prefix` of the day. Other objects under it are left out.
    """
    uris: dict[tuple[int, int], set[str]] = {}
    for item in store.list(comparisons):
        if folder := _FOLDER.match(item.uri, len(comparisons)):
            before, after = map(int, folder.groups())
            uris.setdefault((after, before), set()).add(item.uri)
    return [
        StoredPair(after, before, pair_prefix(comparisons, before=before, after=after), frozenset(of_pair))
        for (after, before), of_pair in sorted(uris.items())
    ]
