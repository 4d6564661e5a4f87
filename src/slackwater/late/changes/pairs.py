"""Where the comparisons of a day are stored: everything about a pair of versions is under a prefix of its own.

The prefixes are `comparisons/<pipeline>/<date>/<before>-<after>/` in the exchange bucket, with the numbers of the
attempts that published the versions. The functions `..._uri` return the URIs of single objects under such a prefix.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pydantic import Field

from slackwater.late.comparison import PublishedVersion
from slackwater.model import Record
from slackwater.pipeline.definition import Aggregation
from slackwater.runs.attempt_files import failure_uri
from slackwater.storage import ObjectStore

_FOLDER = re.compile(r"(\d+)-(\d+)/")


class VersionPair(Record):
    """The two versions that a job compares: the content of the object at `pair_uri`."""

    pipeline: str
    date: str
    before: PublishedVersion
    after: PublishedVersion
    metrics: dict[str, Aggregation] = Field(default_factory=dict)
    """`publish.metrics` of the later version's run, so that the same pair always has the same metrics."""


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


def pair_uri(prefix: str) -> str:
    """Return the URI of the `VersionPair` that is compared under `prefix`."""
    return f"{prefix}pair.json"


def job_started_uri(prefix: str, job: str) -> str:
    """Return the URI of the empty object that a job writes before it compares the pair under `prefix`."""
    return f"{prefix}jobs/{job}/started"


def job_failure_uri(prefix: str, job: str) -> str:
    """Return the URI at which a failed job writes its error: another job may compare the same pair later."""
    return failure_uri(f"{prefix}jobs/{job}/")


def comparison_uri(prefix: str) -> str:
    """Return the URI of the `Comparison` that is stored under `prefix`.

    >>> comparison_uri("s3://exchange/comparisons/daily_delays/2013-11-03/1-2/")
    's3://exchange/comparisons/daily_delays/2013-11-03/1-2/comparison.json'
    """
    return f"{prefix}comparison.json"


def message_uri(prefix: str) -> str:
    """Return the URI of the `Message` about the comparison that is stored under `prefix`."""
    return f"{prefix}message.json"


def split_uri(prefix: str) -> str:
    """Return the URI of the `Split` of the comparison that is stored under `prefix`."""
    return f"{prefix}split.json"


def split_jobs_prefix(prefix: str) -> str:
    """Return the URI prefix of what the jobs of the split write; it is to them what `prefix` is to a comparison's."""
    # Failed splits must not count as failed comparisons, whose errors are below `<prefix>jobs/`.
    return f"{prefix}split/"


def split_run_prefix(prefix: str, job: str) -> str:
    """Return the `Run.prefix` of the job that computes the rows between two versions."""
    # The failure that a stage's job stores there is the one at `job_failure_uri(split_jobs_prefix(prefix), job)`.
    return f"{split_jobs_prefix(prefix)}jobs/{job}/"
