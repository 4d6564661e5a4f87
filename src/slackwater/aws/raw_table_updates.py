"""Requests to the function `update_raw_tables`, which lets the Iceberg tables of raw events follow the listing."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from slackwater.aws.clients import Clients
from slackwater.aws.failures import translated
from slackwater.aws.function import best_effort
from slackwater.sources.partitions import Partition

# Partitions of an asynchronous invocation, whose payload may have 256 KB: each takes about 22 bytes.
_MOST_PARTITIONS = 10_000


@dataclass(frozen=True)
class RawTableUpdates:
    """Requests to the function with this name: `slackwater.sources.partitions.UpdateTable`."""

    clients: Clients
    function: str

    def __call__(self, source: str, partitions: Collection[Partition]) -> None:
        """Have the table of a source follow the listing. An error is only logged: the daily check asks again."""
        ordered = sorted(partitions)
        with best_effort("the raw table waits for the daily check", source=source), translated("update a raw table"):
            for first in range(0, len(ordered), _MOST_PARTITIONS):
                request = {"source": source, "partitions": ordered[first : first + _MOST_PARTITIONS]}
                self.clients("lambda").invoke(
                    FunctionName=self.function, InvocationType="Event", Payload=json.dumps(request)
                )
