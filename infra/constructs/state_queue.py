"""The queue of states, the rules that send events of written objects to it, and the function that reads it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.library_function import LibraryFunction
from infra.constructs.queues import LONGEST_RETENTION, allow_service, create_queue, feed
from infra.settings import Settings
from slackwater.project.project import Project

STATES = "states"
"""The name of the queue, without the deployment's prefix."""
FOLD_TIMEOUT = Duration.minutes(5)
"""Timeout of the function."""
# AWS recommends six times the function's timeout plus the batching window.
_VISIBILITY_TIMEOUT = Duration.minutes(31)
# The daily check has covered an object that has waited longer.
_RETENTION = Duration.days(4)
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


def dead_states(name: str) -> str:
    """Return the name of the dead-letter queue of the queue of states with that name."""
    return f"{name}-dead-letters"


class StateQueue(Construct):
    """Invokes a function with the messages of two seconds: written objects, and hours with new facts.

    Only objects of sources with `counts` lead to messages. With the setting `collect_minutes` 0, objects wait for the
    daily check.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, project: Project, raw: s3.IBucket) -> None:
        super().__init__(scope, id_)
        self._settings, self._raw = settings, raw
        self._counted = sorted(name for name, source in project.sources.items() if source.counts)
        self.name = settings.named(STATES)
        self.dead_letters = create_queue(
            self, "DeadLetters", queue_name=dead_states(self.name), retention_period=LONGEST_RETENTION
        )
        self.queue = create_queue(
            self,
            "Queue",
            queue_name=self.name,
            retention_period=_RETENTION,
            visibility_timeout=_VISIBILITY_TIMEOUT,
            dead_letters=self.dead_letters,
        )
        prefixes = [f"raw/source={name}/" for name in self._counted]
        if len(prefixes) > _MOST_SOURCES:
            prefixes = ["raw/source="]
        rules = [self._rule(number, group) for number, group in enumerate(_batched(prefixes, _SOURCES))]
        for queue in (self.queue, self.dead_letters) if rules else ():
            allow_service(queue, "events", [rule.attr_arn for rule in rules])

    def _rule(self, number: int, prefixes: Sequence[str]) -> events.CfnRule:
        """Send an event of each object below these prefixes to the queue: only its id and time, and the key."""
        return events.CfnRule(
            self,
            f"Rule{number}",
            name=f"{self.name}-{number}",
            description="Objects of sources that report how many events they have sent",
            state="ENABLED" if self._settings.collect_minutes else "DISABLED",
            event_pattern={
                "source": ["aws.s3"],
                "detail-type": ["Object Created"],
                "detail": {
                    "bucket": {"name": [self._raw.bucket_name]},
                    "object": {"key": [{"prefix": prefix} for prefix in prefixes]},
                },
            },
            targets=[
                {
                    "id": "Queue",
                    "arn": self.queue.queue_arn,
                    "inputTransformer": {
                        "inputPathsMap": {"id": "$.id", "key": "$.detail.object.key", "time": "$.time"},
                        "inputTemplate": '{"id": <id>, "key": <key>, "time": <time>}',
                    },
                    "deadLetterConfig": {"arn": self.dead_letters.queue_arn},
                }
            ],
        )

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
