"""The queue of states, which gets an event of each object of sources with counts, and the function that reads it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.library_function import LibraryFunction
from infra.constructs.object_queue import ObjectQueue
from infra.constructs.queues import allow_service, feed
from infra.settings import Settings
from slackwater.project.project import Project

STATES = "states"
"""The name of the queue, without the deployment's prefix."""
FOLD_TIMEOUT = Duration.minutes(5)
"""Timeout of the function."""
# AWS recommends six times the function's timeout plus the batching window.
_VISIBILITY_TIMEOUT = Duration.minutes(31)
# A run that waits goes on within five seconds of the last event. Each second less costs more invocations (decision 44).
_WINDOW = Duration.seconds(2)
_BATCH_SIZE = 10_000
# A mapping allows at least 2, and a new account 10 functions. Each computes about 50 hours a second.
_MIN_CONCURRENCY, _MAX_CONCURRENCY = 2, 10
_SOURCES_FOR_ONE = 1_000
# A pattern has 2,048 characters at most, and the name of a source 63.
_SOURCES = 20
# An account has 300 rules. More sources share one rule, for all objects.
_MOST_SOURCES = 400


class StateQueue(ObjectQueue):
    """Invokes a function with the messages of two seconds: written objects, and hours with new facts.

    Only objects of sources with `counts` lead to messages.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, project: Project, raw: s3.IBucket) -> None:
        super().__init__(scope, id_, settings=settings, raw=raw, name=STATES, visibility_timeout=_VISIBILITY_TIMEOUT)
        self._counted = sorted(name for name, source in project.sources.items() if source.counts)
        prefixes = [f"raw/source={name}/" for name in self._counted]
        if len(prefixes) > _MOST_SOURCES:
            prefixes = ["raw/source="]
        description = "Objects of sources that report how many events they have sent"
        rules = [
            self.send_events(f"Rule{number}", group, name=f"{self.name}-{number}", description=description)
            for number, group in enumerate(_batched(prefixes, _SOURCES))
        ]
        for queue in (self.queue, self.dead_letters) if rules else ():
            allow_service(queue, "events", [rule.attr_arn for rule in rules])

    def feed(self, function: LibraryFunction) -> None:
        """Invoke the function with batches of messages; not at all if no source has counts."""
        feed(
            function,
            "States",
            self.queue,
            batch_size=_BATCH_SIZE,
            window=_WINDOW,
            concurrency=min(max(_MIN_CONCURRENCY, len(self._counted) // _SOURCES_FOR_ONE), _MAX_CONCURRENCY),
            # Lambda asks the queue several times a minute, which costs 0.1 USD a month.
            enabled=bool(self._counted),
        )


def _batched(items: Sequence[str], size: int) -> list[Sequence[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
