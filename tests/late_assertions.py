"""What is true about a pipeline with late data when its checks have come to rest."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from hashlib import md5
from itertools import pairwise

from slackwater.late.decision import EARLY_RULES, MAX_FAILURES
from slackwater.metrics import Metric
from slackwater.runs.record import DayRecord, RunRecord, RunState
from tests.fakes_check import PIPELINE
from tests.late_history import DATES, Inputs, LateHistory, changes, new_definition


class LateAssertions(LateHistory):
    """The assertions, each about all days."""

    def each_day_has_its_inputs(self, first: str) -> None:
        for date in DATES:
            day = self.world.table.day(PIPELINE, date)
            if day.published is None:
                continue
            if day.hold:
                self.the_hold_has_its_cause(day, is_older=date < first)
                continue
            assert self.world.warehouse.days[date] == self.world.warehouse.versions[date, day.published.run.attempt]
            assert self.is_kept(date, is_older=date < first), (date, self.published_rows(date), self.raw(date))

    def the_hold_has_its_cause(self, day: DayRecord, *, is_older: bool) -> None:
        """A day is on hold because it has lost rows, or because of what its latest attempts have done."""
        world, digests = self.world, self.digests(day.date)
        present = self.shared(day.date, self.raw(day.date), *digests)
        runs = {run.run.attempt: run for run in world.table.runs(PIPELINE, day.date)}
        read = self.shared(day.date, self.rows_of(day.published.run.manifest), *digests)
        if day.hold.rule == "rolled_back":
            assert runs[day.published.run.attempt].rollback, day.hold
        elif day.hold.rule == "moved_hours":
            timezone = world.project.pipelines[PIPELINE].timezone
            assert runs[day.published.run.attempt].reads.timezone != timezone or is_older, day.hold
        elif day.hold.rule in {"vanished", "removed", "shrank"}:
            # With late data, a day before the window stays on hold after its cause has gone.
            assert self.has_lost(read, present) or (is_older and self.new_objects(day.date)), day.hold
        else:
            assert day.hold.rule in {"audit", "failed"}, day.hold
            number = 1 if day.hold.rule == "audit" else MAX_FAILURES
            last = day.hold.attempt or day.attempts
            # A rollback that has failed says nothing about a run.
            later = [runs[attempt] for attempt in range(day.published.run.attempt + 1, last + 1)]
            failed = [run for run in later if not run.rollback][-number:]
            assert len(failed) == number, day.hold
            assert {run.state for run in failed} <= {RunState.FAILED, RunState.RUNNING}, day.hold
            assert day.hold.rule == "failed" or "AuditFailed" in failed[0].error, failed
            # With other inputs, or a new definition that runs its days again, a check runs the day again.
            now = self.raw(day.date), digests[1]
            is_same = all((self.rows_of(run.run.manifest), run.definition) == now for run in failed)
            rows = sum(self.raw(day.date).values())
            is_below = self.is_below(read, present, rows_to_read=rows) and not self.has_lost(read, present)
            assert is_same or is_older or (is_below and not self.runs_for_its_definition(day.date)), day.hold

    def no_version_is_lost(self) -> None:
        world = self.world
        records = {(run.run.date, run.run.attempt): run for run in world.table.runs(PIPELINE)}
        published = {key for key, run in records.items() if run.state is RunState.PUBLISHED}
        assert self.recorded <= published
        assert {
            (day.date, day.published.run.attempt) for day in world.table.by_day.values() if day.published
        } <= published
        for key in published:
            run = records[key]
            assert world.manifest_content(run.run.manifest) == world.warehouse.versions[key]
            assert run.publication.rows == len(world.warehouse.versions[key])
        for day in world.table.by_day.values():
            assert {attempt for date, attempt in records if date == day.date} == set(range(1, day.attempts + 1))
            running = {
                attempt for (date, attempt), run in records.items() if (date, run.state) == (day.date, "running")
            }
            assert running <= ({day.active.run.attempt} if day.active else set())
            assert day.active is None or not world.executions.is_running(day.active.execution)

    def nothing_is_lost_without_a_decision(self) -> None:
        """Only a person publishes a day with fewer inputs, or other rows than those of a rollback."""
        for date in DATES:
            runs = [run for run in self.world.table.runs(PIPELINE, date) if run.state is RunState.PUBLISHED]
            for before, after in pairwise(runs):
                if after.rollback:
                    continue
                read = [self.rows_of(run.run.manifest) for run in (before, after)]
                old, new = (self.shared(date, rows, before.definition, after.definition) for rows in read)
                is_drop = self.on_removed == "drop"
                dropped = {uri for uri, file in self.files.items() if is_drop and file in self.ever_withdrawn}
                assert not self.lost(old, new, dropped) or (date, frozenset(read[1])) in self.released, (
                    date,
                    after.run.attempt,
                )
                assert not before.rollback or (date, before.run.attempt) in self.decided, (date, after.run.attempt)

    def people_know_each_version(self) -> None:
        world = self.world
        sent = [(document["date"], document["attempt_after"]) for document in world.documents("attempt_after")]
        assert len(sent) == len(set(sent)), "a message was sent twice"
        for day in world.table.by_day.values():
            if day.published is None:
                continue
            seen = [attempt for date, attempt in [*sent, *world.alarms] if date == day.date]
            runs = world.table.runs(PIPELINE, day.date)
            first = min(run.run.attempt for run in runs if run.state is RunState.PUBLISHED)
            assert not day.notification_due
            known, versions = max(seen, default=first), world.warehouse.versions
            assert versions[day.date, known] == versions[day.date, day.published.run.attempt], day.date

    def the_ledger_has_each_late_input(self, first: str) -> None:
        world = self.world
        expected: Counter[tuple] = Counter()
        for date in DATES:
            runs = [run for run in world.table.runs(PIPELINE, date) if run.state is RunState.PUBLISHED]
            if runs:
                expected.update(self.taken_in_first(runs[0]))
            for before, after in pairwise(runs):
                # A rollback reads no inputs.
                if not after.rollback:
                    digests = before.definition, after.definition
                    read = (self.manifest_inputs(run.run.manifest) for run in (before, after))
                    inputs = changes(*(self.shared(date, each, *digests) for each in read))
                    inputs += new_definition(*digests)
                    expected.update((date, after.run.attempt, *change) for change in inputs)
            day = world.table.day(PIPELINE, date)
            if runs and date >= first:
                self.the_ledger_has_each_waiting_input(runs[-1], day)
            elif runs:
                self.the_ledger_has_each_late_object_of_an_older_day(date)
            elif date in self.report.overdue:
                rows = self.handlings(date)
                for uri, etag in self.present(date):
                    assert rows[uri, etag, "added"] == ("ignore", "never_published", None), (date, uri)
        rows = world.ledger.rows
        read_by_runs = Counter(
            (str(row.date), row.attempt, row.uri, row.etag, row.change, row.rows) for row in rows if row.attempt
        )
        assert read_by_runs == expected
        handlings: dict[tuple, list[tuple]] = {}
        for row in sorted(rows, key=lambda row: row.decided_at):
            handlings.setdefault((row.date, row.key), []).append((row.decision, row.rule, row.attempt))
        assert all(one != other for each in handlings.values() for one, other in pairwise(each))

    def the_counters_are_those_of_the_ledger(self) -> None:
        """A lost answer about a commit, or a process that ends after it, loses its counts, and none counts twice."""
        rows, counted = self.world.ledger.rows, self.world.counted
        late = {
            (row.date, row.key): row.bytes
            for row in rows
            if row.decision in {"rerun", "defer", "hold"} and row.change in {"added", "changed"}
        }
        expected = {
            Metric.DAYS_RERUN: len({(row.date, row.attempt) for row in rows if row.attempt and row.execution}),
            Metric.LATE_BYTES: sum(late.values()),
            Metric.LATE_OBJECTS_OLDER: len(
                {(row.date, row.key) for row in rows if row.rule == "older" and row.change != "removed"}
            ),
        }
        for metric, count in expected.items():
            assert counted[metric] == count or (self.is_interrupted and counted[metric] < count), metric

    def the_ledger_has_each_waiting_input(self, run: RunRecord, day: DayRecord) -> None:
        """The latest row of each late input that no run has taken in has the decision of the last check."""
        (decision,) = (item for item in self.report.days if item.date == day.date)
        digests = run.definition, self.world.project.written_digest(PIPELINE)
        read = self.manifest_inputs(run.run.manifest)
        inputs = changes(*(self.shared(day.date, each, *digests) for each in (read, self.present(day.date))))
        # A check compares no definition with that of a day that was rolled back.
        definition = new_definition(*digests) if decision.rule != "rolled_back" else []
        latest = self.handlings(day.date)
        for *key, _ in (*inputs, *definition):
            assert latest.get(tuple(key)) == (decision.decision, decision.rule, None), (day.date, key)

    def the_ledger_has_each_rejected_event(self) -> None:
        """Each object of events that were rejected after the end of their day has one row, in all timezones alike."""
        rows = Counter((row.uri, row.rows) for row in self.world.ledger.rows if row.change == "rejected")
        assert max(rows.values(), default=1) == 1, rows
        for uri, (date, events, at) in self.rejected.items():
            # The hours of some definitions end later, or belong to the next day.
            ended = datetime.fromisoformat(f"{date}T00:00:00+00:00") + timedelta(days=2)
            is_late, may_be_late = at >= ended, at >= ended - timedelta(days=1, hours=6)
            assert ((uri, events) in rows) >= is_late, (uri, date, at)
            assert ((uri, events) in rows) <= may_be_late, (uri, date, at)

    def the_ledger_has_each_late_object_of_an_older_day(self, date: str) -> None:
        """Its latest row says that no run has taken it in."""
        latest = self.handlings(date)
        new = {uri for uri in self.new_objects(date) if self.is_always_read(date, uri)}
        for uri, etag in self.present(date):
            rows = [latest[uri, etag, change] for change in ("added", "changed") if (uri, etag, change) in latest]
            assert uri not in new or None in {attempt for *_, attempt in rows}, (date, uri, rows)

    def handlings(self, date: str) -> dict[tuple[str, str, str], tuple[str, str, int | None]]:
        """Return decision, rule and attempt of the latest row of each late input of a day."""
        return {
            (row.uri, row.etag, row.change): (row.decision, row.rule, row.attempt)
            for row in sorted(self.world.ledger.rows, key=lambda row: row.decided_at)
            if str(row.date) == date
        }

    def present(self, date: str) -> Inputs:
        """Return the present inputs of a day."""
        raw = self.raw(date)
        return {
            (uri, md5(body, usedforsecurity=False).hexdigest()): (metadata.get("file"), int(metadata["rows"]))
            for uri, (body, metadata, _) in self.world.store.objects.items()
            if uri in raw
        }

    def taken_in_first(self, run: RunRecord) -> list[tuple]:
        """Return the inputs of the first version of a day that the ledger has as those of a day without any."""
        read, date = self.manifest_inputs(run.run.manifest), run.run.date
        waiting = {
            (row.uri, row.etag, row.change, row.rows)
            for row in self.world.ledger.rows
            if (str(row.date), row.rule) == (date, "never_published")
        }
        return [(date, run.run.attempt, *key) for key in waiting if key[:2] in read]

    def the_ledger_has_each_effect(self) -> None:
        """A run has the effect of its version, if it was ever compared, and whether people got a message about it."""
        world, compared = self.world, set()
        for uri in world.store.objects:
            if uri.startswith("s3://exchange/comparisons/") and uri.endswith("/comparison.json"):
                date, pair = uri.split("/")[-3:-1]
                before, after = map(int, pair.split("-"))
                compared.add((date, before, after))
        sent = {(document["date"], document["attempt_after"]) for document in world.documents("attempt_after")}
        for row in world.ledger.rows:
            date, attempt = str(row.date), row.attempt
            if attempt is None:
                assert (row.rows_differing, row.notified) == (None, False)
                continue
            befores = [before for each, before, after in compared if (each, after) == (date, attempt)]
            versions = world.warehouse.versions
            differing = len(versions[date, max(befores)].keys() ^ versions[date, attempt].keys()) if befores else None
            assert row.rows_differing == differing, row
            assert row.notified <= ((date, attempt) in sent), row
            # After an interruption, the id of a message that was sent may be unknown.
            assert row.notified == ((date, attempt) in sent) or self.is_interrupted, row

    def people_know_each_definition(self) -> None:
        """People got one message about a definition that published days of the window do not have, if these stay."""
        world, digest = self.world, self.world.project.written_digest(PIPELINE)
        sent = [document["definition"] for document in world.documents("definition")]
        assert all(one != other for one, other in pairwise(sent)), sent
        dates = {day.date for day in self.report.days if day.rule not in EARLY_RULES}
        kept = [date for date in DATES if date in dates and self.digests(date)[0] != digest]
        if kept and self.on_definition == "keep":
            assert digest in sent[-1:] or world.definition_alarms, (kept, sent)
        assert self.on_definition == "keep" or not sent

    def the_limits_hold(self) -> None:
        started = self.world.late_reruns
        if "max_reruns_per_day" in self.limits:
            count = Counter(calendar_day for calendar_day, *_ in started)
            assert max(count.values(), default=0) <= 1, count
        if "budget_per_day" in self.limits:
            # Repairs are counted too, and no limit stops them.
            usages = [item for (pipeline, _), item in self.world.table.usage.items() if pipeline == PIPELINE]
            counted = {(of.date, item.date, item.attempt): item.usd for of in usages for item in of.reruns}
            assert counted.keys() >= {*started}, started
            for of in usages:
                spent = sum(counted[key] or 0.0 for key in {*started} if key[0] == of.date)
                assert spent <= self.limits["budget_per_day"], (of, started)
