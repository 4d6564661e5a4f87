"""A month of an hourly pipeline over the changes of clocks in three timezones, with late, changed and removed data.

Checks of the library decide about each hour. A subclass of `MonthWorld` has jobs that compute and publish the rows.
"""

from __future__ import annotations

import io
import random
from abc import abstractmethod
from collections import Counter
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.late.decision import DecisionRule
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.period import HOUR
from slackwater.runs.record import Run
from slackwater.sources.definition import Source
from tests.late_processes import Process
from tests.late_world import LateWorld, Warehouse

ZONES = {"new_york": "America/New_York", "berlin": "Europe/Berlin", "auckland": "Pacific/Auckland"}
"""The daily pipelines with their timezones, whose clocks change in this month."""
HOURS_OF_CHANGE = {"new_york": 23, "berlin": 23, "auckland": 25}
HOURLY = "hourly"
KINDS = ("open", "read", "buy")
QUERY = "SELECT kind, count(*) AS clicks, sum(value) AS total FROM clicks GROUP BY kind"
SCHEMA = pa.schema(
    [("id", pa.string()), ("kind", pa.string()), ("value", pa.int64()), ("at", pa.timestamp("us", "UTC"))]
)


def definition(name: str, **more: Any) -> Pipeline:
    step = {"step": "sql", "depends_on": ["clicks"], "with": {"query": QUERY}}
    key = ["date", *(["hour"] if "period" in more else []), "kind"]
    fields = {"pipeline": name, "sources": ["clicks"], "steps": {"by_kind": step}}
    return Pipeline.model_validate({**fields, "publish": {"step": "by_kind", "key": key}, **more})


class MonthWorld(LateWorld):
    """The hourly pipeline and three daily ones over the same source, and the events that were sent."""

    first, days = datetime(2013, 3, 9, tzinfo=UTC), 30

    def __init__(self) -> None:
        super().__init__()
        self.chance = random.Random(7)  # noqa: S311 - the same events each time
        self.sent: dict[str, list[dict[str, Any]]] = {}
        """The events of each object that is there, by URI."""
        fields = {"id": "string", "kind": "string", "value": "int64", "at": "timestamp"}
        source = {"source": "clicks", "timestamp": {"field": "at"}, "event_id": "id", "fields": fields, "push": {}}
        late = {"window_hours": 168, "cool_down_hours": 0, "max_reruns_per_day": 1000}
        schedule = {"process": "5 * * * *"}
        hourly = definition(HOURLY, period="hour", timezone=ZONES["new_york"], late=late, schedule=schedule)
        daily = {name: definition(name, timezone=zone) for name, zone in ZONES.items()}
        self.project = Project(sources={"clicks": Source.model_validate(source)}, pipelines={HOURLY: hourly, **daily})
        self.pipeline, self.time = HOURLY, self.first

    @abstractmethod
    def publish(self, run: Run) -> None:
        """Publish the rows of a run, and write its publication."""

    @abstractmethod
    def published(self, pipeline: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table in order: date as text, hour if it has hours, kind, clicks, total."""

    def job(self, run: Run, outcome: str, process: Process, restore: int = 0) -> None:
        self.warehouse.commit(run, self.manifest_content(run.manifest))
        self.publish(run)

    def send(self, hour: datetime, name: str) -> None:
        """Store an object with new events of an hour, and some that its first object has."""
        uri = uri_of(hour, name)
        events = [
            {
                "id": f"{hour:%m%d%H} {name} {number}",
                "kind": self.chance.choice(KINDS),
                "value": self.chance.randrange(1000),
                "at": hour + timedelta(seconds=self.chance.randrange(3600)),
            }
            for number in range(self.chance.randrange(1, 40))
        ]
        first = self.sent.get(uri_of(hour, "a"), [])
        self.sent[uri] = events + self.chance.sample(first, len(first) // 5)
        table, rows = pa.Table.from_pylist(self.sent[uri], SCHEMA), len(self.sent[uri])
        more = {"_event_time": table["at"], "_received_at": pa.array([self.time] * rows, SCHEMA.field("at").type)}
        for column, values in (more | dict.fromkeys(("_batch_id", "_extra"), pa.array([name] * rows))).items():
            table = table.append_column(column, values)
        body = io.BytesIO()
        pq.write_table(table, body)
        self.store.put(uri, body.getvalue(), metadata={"rows": str(rows)})

    def remove(self, hour: datetime, name: str) -> None:
        uri = uri_of(hour, name)
        self.store.delete([uri])
        self.sent.pop(uri, None)

    def play(self) -> Self:
        """Run each hour when it has ended; check the week before once a day. A person releases the hours on hold."""
        ended, rules = list[datetime](), Counter[DecisionRule]()
        self.on_check = lambda report: rules.update(day.rule for day in report.days if day.attempt)
        for day in range(self.days):
            for _ in range(24):
                hour = self.time.replace(minute=0, second=0)
                ended.append(hour)
                for name in "abc":
                    self.send(hour, name)
                self.time = hour + HOUR
                assert self.run_day(f"{hour:%Y-%m-%dT%H}")
            *late, corrected, shrunk = self.chance.sample(ended[-160:], 7)
            for hour in late:
                self.send(hour, f"late-{day}")
            self.remove(corrected, "b")
            self.send(corrected, f"corrected-{day}")
            self.remove(shrunk, "c")
            midnight = self.time
            self.monitor()
            for name in list(self.table.held(HOURLY)):
                force = self.hold_decisions_of(Process()).release(HOURLY, name, reason="the partner has corrected it")
                assert self.run_day(name, force=force)
            self.time = midnight
        self.monitor()
        assert rules[DecisionRule.GROWN] >= 4 * self.days
        assert rules[DecisionRule.VANISHED] >= self.days
        assert not list(self.table.held(HOURLY))
        return self

    def of(self, pipeline: str) -> Self:
        """Return another pipeline of the same cloud."""
        other = copy(self)
        other.pipeline, other.now, other.warehouse = pipeline, self.now, Warehouse()
        return other

    def duck(self, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        """Return what DuckDB computes from the events that were sent and not removed, each id once."""
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("sent", pa.Table.from_pylist([e for each in self.sent.values() for e in each], SCHEMA))
        return connection.execute(
            f"SELECT {columns}, kind, count(*), sum(value)::BIGINT FROM (SELECT DISTINCT * FROM sent) "
            f"WHERE {where} GROUP BY ALL ORDER BY ALL"
        ).fetchall()


def uri_of(hour: datetime, name: str) -> str:
    return f"s3://raw/raw/source=clicks/date={hour:%Y-%m-%d}/hour={hour:%H}/{name}.parquet"


def check_hours(month: MonthWorld) -> None:
    """Compare each published hour with DuckDB."""
    published = month.published(HOURLY)
    assert published == month.duck('"at"::DATE::VARCHAR, hour("at")')
    hours = {f"{date}T{hour:02}" for date, hour, *_ in published}
    assert len(hours) == month.days * 24
    again = {name for name in hours if month.table.day(HOURLY, name).attempts > 1}
    assert {row.period for row in month.ledger.rows if row.attempt} == again


def check_days(month: MonthWorld, name: str) -> None:
    """Run a daily pipeline, and compare it with the sums of the hours of each local day, and with DuckDB."""
    zone, hours, sums = ZoneInfo(ZONES[name]), Counter[str](), dict[tuple[str, str], list[int]]()
    for number in range(month.days * 24):
        hours[(month.first + number * HOUR).astimezone(zone).date().isoformat()] += 1
    whole = sorted(hours)[1:-1]
    assert {hours[day] for day in whole} == {24, HOURS_OF_CHANGE[name]}
    for date, hour, kind, clicks, total in month.published(HOURLY):
        at = datetime.fromisoformat(f"{date}T{hour:02}:00+00:00")
        known = sums.setdefault((at.astimezone(zone).date().isoformat(), kind), [0, 0])
        known[0], known[1] = known[0] + clicks, known[1] + total
    daily = month.of(name)
    for day in whole:
        assert daily.run_day(day)
    published = daily.published(name)
    assert published == sorted((*key, *values) for key, values in sums.items() if key[0] in whole)
    local = f"timezone('{zone.key}', \"at\")::DATE::VARCHAR"
    assert published == month.duck(local, f"{local} BETWEEN '{whole[0]}' AND '{whole[-1]}'")
