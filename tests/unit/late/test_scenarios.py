"""What happens to one published day, as a table: steps, and the rule by which the next check decides about the day."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.client.holds import days_on_hold
from slackwater.errors import InputError
from slackwater.late.decision import DecisionRule
from slackwater.runs.record import DayRecord, Run, RunState, failure_uri, publication_uri
from tests.fakes_check import PIPELINE, PUBLICATION, five_days
from tests.unit.late.test_removed_files import PulledDay

pytestmark = pytest.mark.unit

DAY = "2013-03-10"
RULE = "DataError: checked: not_null of tailnum failed in 4 of 1,000 checked rows, such as {}"
FAILURES = {
    "audit": "AuditFailed: 1 rows would replace the 3 rows that are published",
    "rule": RULE,
    "spark": "SparkException: a column is missing",
    "superseded": f"Superseded: attempt 3 has published {DAY} already",
    "load": "DataError: load.erp: too long",
}
RUN_DAY = f"slackwater run {PIPELINE} --date {DAY}"
FILE = "flights-2013-03-10.csv"

SCENARIOS = {
    "late data adds up to a threshold": "late flights 9; BELOW; late flights 1 two; GROWN",
    "a lost run may have published": "late weather 1; freeze; stop; OUTCOME_UNKNOWN; reason grew by 1 row",
    "a run of the published day is lost": "start; RUNNING; stop; OUTCOME_UNKNOWN",
    "a new run is not known to Step Functions yet": "late; freeze; forget; RUNNING; wait 0.05; OUTCOME_UNKNOWN",
    "three runs fail": (
        "late flights 30; GROWN; crash; OUTCOME_UNKNOWN; crash; OUTCOME_UNKNOWN; crash; FAILED; crash; FAILED"
    ),
    "three runs of unchanged inputs fail": "crash; crash; crash; FAILED",
    "other inputs restart the count of failures": (
        "late flights 30; crash; crash; late flights 1 later; crash; lose flights later; crash; crash; wait 1; "
        "OUTCOME_UNKNOWN; crash; FAILED"
    ),
    "a run may have published unchanged inputs": (
        "crash; OUTCOME_UNKNOWN; reason attempt 2 ended without an outcome and may have published: the table may not "
        "hold the recorded version; run; UNCHANGED"
    ),
    "a run may have published, and a little data is late": "late flights 1; BELOW; crash; OUTCOME_UNKNOWN",
    "a run may have published, and inputs are lost": "crash; lose flights; VANISHED",
    "the manifest is gone": f"lose manifest; MANIFEST_GONE; reason {RUN_DAY} --force; force; UNCHANGED",
    "inputs that were not compared cannot be kept": (
        "lose manifest; MANIFEST_GONE; keep ! rule manifest_gone; release; rerun; attempt 2; UNCHANGED"
    ),
    "a day is published from what is left": (
        f"lose flights; check; freeze ! have lost 1,000 rows .* slackwater late release {PIPELINE} --date; release; "
        "rerun; attempt 2; accepts; rows 1000; free; released; UNCHANGED"
    ),
    "nobody has seen the losses after a hold": (
        "lose flights; check; lose weather; release ! changed since its hold .* not released\\. Its hold is now: "
        ".*weather has; undecided; says weather has lost 1 object with 1,000 rows; release; rerun; rows 0"
    ),
    "nobody has seen the losses after a release": (
        "lose flights; check; release; lose weather; release ! changed since its hold .* Its hold is now: .*weather "
        "has; release; rerun; rows 0"
    ),
    "a day loses more after its release": (
        "lose flights; release; lose weather; VANISHED; freeze ! have lost 2,000 rows"
    ),
    "inputs are back before the release": (
        "lose flights; check; return flights; release ! Now it needs no release: no new data .*\\. To run it with "
        "these inputs; free; ended"
    ),
    "inputs are back before the release of an older day": (
        "lose flights; check; wait 720; return flights; release ! Now it needs no release: no new data .*\\. To run it "
        "with these inputs; free; ended"
    ),
    "an older day loses more": (
        "lose flights; check; wait 720; lose weather; check; says weather has lost; release; rerun; rows 0"
    ),
    "the cause of an older hold is gone": (
        "lose flights; check; wait 720; check; held vanished; return flights; check; free; ended"
    ),
    "an older day on hold would run again": (
        "lose flights; check; wait 720; return flights; late; check; held vanished"
    ),
    "the run of a release was never started": "lose flights; check; release; RELEASED; run; attempt 2; UNCHANGED",
    "newer inputs than the kept ones": (
        "lose flights; check; keep; KEPT; reason kept by arn:aws:iam::1:user/ana on 2013-03-13 18:00 UTC: r; "
        "free; late; VANISHED; held vanished"
    ),
    "keeping is about the inputs of the hold": "lose flights; check; late; keep; VANISHED",
    "an error that may pass replaces no hold": "lose flights; check; stray; UNREADABLE; held vanished",
    "a day without a known outcome cannot be kept": (
        "late; fail spark; fail spark; fail spark; FAILED; keep ! may have published"
    ),
    "an audit fails": "late; fail audit; held audit 2; known; AUDIT; release; rerun; accepts; UNCHANGED",
    "an audit fails, and other rows arrive": (
        f"late; fail audit; late weather 10 more; release ! it needs no release: .*To run it .*{RUN_DAY}; run; "
        "audited; free"
    ),
    "an audit fails, and a run may have published": (
        "late; fail audit; late weather 10 more; COOL_DOWN; fail spark; OUTCOME_UNKNOWN; free"
    ),
    "an audit of a new definition fails, and a little data arrives": (
        "fail audit force; AUDIT; late flights 1; BELOW; held audit 2"
    ),
    "a refused rollback does not end the hold of an audit": (
        "wait 2; late flights 50 b; run; wait 2; late flights 50 c; fail audit; wait 2; AUDIT; rollback fails; wait 2; "
        "AUDIT"
    ),
    "the inputs of a failed audit are kept": "late; fail audit; keep; KEPT",
    "a rule fails in a re-run": (
        f"late; fail rule; held audit 2; says {RULE}; known; AUDIT; release; fail rule; held audit 3; keep; "
        "KEPT; late weather 10 more; wait 1; GROWN"
    ),
    "a load step refuses rows that are published": "late; fail load; free; unknown",
    "a job is superseded": "late; fail superseded; free; unknown",
    "a removed file is kept": "pulled keep; remove; UNCHANGED; force; rows 2100",
    "a removed file holds the day": (
        f"pulled hold; remove; REMOVED; reason flights: the partner has removed 1 file, {FILE}, with 100 rows that the "
        "published run has read; held removed; freeze ! have lost 100 rows .* slackwater late release; release; "
        "RELEASED; run; rows 2000; accepts; UNCHANGED"
    ),
    "a removal is kept": "pulled hold; remove; check; keep; KEPT; late; REMOVED",
    "a removed file is back": "pulled hold; remove; check; return file; UNCHANGED; free; ended",
    "a removed file shares its content with another": "pulled drop shared; remove; UNCHANGED; remove; GROWN",
    "objects are gone where removed files are dropped": "pulled drop; lose file; VANISHED",
}  # fmt: skip


class Day:
    """The middle one of five published days, and what the steps of a scenario do to it or find of it."""

    def __init__(self) -> None:
        self.world, self.lost = five_days(), dict[str, tuple]()
        self.run: Run | None = None
        self.is_forced = False

    @property
    def record(self) -> DayRecord:
        return self.world.table.day(PIPELINE, DAY)

    def play(self, step: str) -> None:
        step, _, refusal = step.partition(" ! ")
        verb, *words = step.split(" ")
        if verb.isupper():
            self.decision = next(day for day in self.world.check().days if day.date == DAY)
            assert self.decision.rule is DecisionRule[verb]
        elif refusal:
            with pytest.raises(InputError, match=refusal):
                getattr(self, f"do_{verb}")(*words)
        else:
            getattr(self, f"do_{verb}")(*words)

    # What happens

    def uri(self, what: str, name: str = "a") -> str:
        if what == "manifest":
            return self.record.published.run.manifest
        if what == "file":
            return self.pulled.uri
        return f"s3://raw/raw/source={what}/date={DAY}/hour={'17' if name == 'a' else '20'}/{name}.parquet"

    def do_pulled(self, on_removed: str, shared: str = "") -> None:
        self.pulled = PulledDay(on_removed, shared=bool(shared))
        self.world = self.pulled.world

    def do_remove(self) -> None:
        self.pulled.remove()

    def do_late(self, source: str = "weather", rows: str = "10", name: str = "late") -> None:
        self.world.add(source, DAY, "20", name=name, rows=int(rows))

    def do_stray(self) -> None:
        self.world.store.put(self.uri("flights", "b"), b"not ours", metadata={})

    def do_lose(self, *what: str) -> None:
        uri = self.uri(*what)
        self.lost[uri] = self.world.store.objects[uri]
        self.world.store.delete([uri])

    def do_return(self, what: str) -> None:
        if what == "file":
            self.pulled.remove(-1)
        else:
            self.world.store.objects[self.uri(what)] = self.lost[self.uri(what)]

    def do_wait(self, hours: str) -> None:
        self.world.time += timedelta(hours=float(hours))

    def do_check(self) -> None:
        self.world.check()

    def do_freeze(self) -> None:
        self.world.freeze(DAY)

    def do_start(self) -> None:
        self.world.freeze(DAY, force=True)

    def do_stop(self) -> None:
        self.world.executions.running.clear()

    def do_forget(self) -> None:
        self.world.executions.known.clear()

    def do_run(self) -> None:
        self.run = self.world.publish(DAY)

    def do_force(self) -> None:
        self.run = self.world.publish(DAY, force=True)

    def do_rerun(self) -> None:
        """Run the day as the release before says."""
        self.run = self.world.publish(DAY, force=self.is_forced)

    def do_crash(self) -> None:
        self.world.fail(self.world.freeze(DAY, force=True))

    def do_fail(self, failure: str, force: str = "") -> None:
        run, store = self.world.freeze(DAY, force=bool(force)), self.world.store
        if failure == "load":
            store.put(publication_uri(run.prefix), PUBLICATION.model_dump_json().encode())
        store.put(failure_uri(run.prefix), FAILURES[failure].encode())
        self.world.fail(run)
        assert self.world.table.run(PIPELINE, DAY, run.attempt).state is RunState.FAILED
        hold = self.record.hold
        assert not hold or hold.attempt != run.attempt or hold.inputs in run.manifest

    def do_rollback(self, fails: str) -> None:
        run = self.world.freeze(DAY, rollback=1, reason="the version before")
        self.world.store.put(failure_uri(run.prefix), b"ObjectMissing: the tag is gone")
        self.world.fail(run)

    def do_release(self) -> None:
        self.is_forced = self.world.hold_decisions().release(PIPELINE, DAY, reason="r")
        self.world.executions.running.clear()

    def do_keep(self) -> None:
        self.world.executions.running.clear()
        assert self.world.hold_decisions().keep(PIPELINE, DAY, reason="r").resolution.reason == "r"

    # What is true then

    def do_reason(self, *words: str) -> None:
        assert " ".join(words) in self.decision.reason

    def do_held(self, rule: str, attempt: str = "") -> None:
        assert [(day.date, day.hold.rule) for day in days_on_hold(self.world.table, [PIPELINE])] == [(DAY, rule)]
        assert not attempt or self.record.hold.attempt == int(attempt)

    def do_says(self, *words: str) -> None:
        assert " ".join(words) in self.record.hold.reason

    def do_free(self) -> None:
        assert (self.record.hold, days_on_hold(self.world.table, [PIPELINE])) == (None, [])

    def do_undecided(self) -> None:
        assert self.record.resolution is None

    def do_ended(self) -> None:
        made = self.record.resolution
        assert (made.action, made.reason) == ("ended", "no new data since the published run")

    def do_released(self) -> None:
        made = self.record.resolution
        assert (made.action, made.reason, made.principal) == ("released", "r", "arn:aws:iam::1:user/ana")

    def do_known(self) -> None:
        assert not self.record.outcome_unknown

    def do_unknown(self) -> None:
        assert self.record.outcome_unknown

    def do_attempt(self, number: str) -> None:
        assert self.record.published.run.attempt == self.run.attempt == int(number)

    def do_rows(self, number: str) -> None:
        assert self.run.rows == int(number)

    def do_accepts(self) -> None:
        assert self.run.accepts_audit

    def do_audited(self) -> None:
        assert not self.run.accepts_audit


@pytest.mark.parametrize("steps", SCENARIOS.values(), ids=SCENARIOS)
def test_a_scenario_of_one_day(steps):
    day = Day()
    for step in steps.split("; "):
        day.play(step)
