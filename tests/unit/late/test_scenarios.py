"""What happens to one published day, as a table: steps, and the rule by which the next check decides about the day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slackwater.client.holds import days_on_hold, describe_decision
from slackwater.client.older import older_days
from slackwater.errors import InputError
from slackwater.late.arrival_messages import ObjectWritten
from slackwater.late.check.arrival_checks import ArrivalChecks
from slackwater.late.check.tasks import day_tasks
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.project.project import CodeDigests
from slackwater.runs.attempt_files import failure_uri, publication_uri
from slackwater.runs.freeze import FreezeAction
from slackwater.runs.record import DayRecord, Hold, Run, RunState
from tests.fakes_check import PIPELINE, PUBLICATION, five_days, freezer_of
from tests.unit.late.test_new_definition import STEPS, define
from tests.unit.late.test_removed_files import PulledDay
from tests.unit.runs.test_table_inputs import SUNDAY, Weeks, week_of

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
        "late flights 30; GROWN; crash; OUTCOME_UNKNOWN; crash; OUTCOME_UNKNOWN; crash; FAILED; tasks; reason the last "
        "3 attempts failed with the same inputs and definition, attempt 4 with: E: no cause was given: fix the cause, "
        f"then run the day by hand ({RUN_DAY}); crash; FAILED"
    ),
    "three runs fail, and then the code is another one": (
        "late flights 30; crash; crash; crash; wait 1; code newer; OUTCOME_UNKNOWN; code; FAILED"
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
        f"lose flights; check; freeze ! ^the inputs have lost 1,000 rows that the published run of {DAY} has read "
        f"\\(1 gone\\), such as those of pushed events of flights in {DAY} 17:00 UTC: find out why. to publish the day "
        f"without these rows: slackwater late release {PIPELINE} --date {DAY} --reason TEXT$; release; rerun; attempt "
        "2; accepts; rows 1000; free; released; UNCHANGED; lose weather; freeze ! have lost 1,000 rows"
    ),
    "a release does not apply after another version was published": (
        "lose flights; release; run; return flights; run; lose flights; freeze ! have lost 1,000 rows"
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
    "inputs are back": "lose flights; check; return flights; UNCHANGED; free; ended",
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
    "an object that the receiver has not written": (
        f"stray; UNREADABLE; reason cannot be checked: s3://raw/raw/source=flights/date={DAY}/hour=20/b.parquet does "
        "not say how many events it holds: it was not written by the receiver (remove it)"
    ),
    "people are notified of a day that cannot be checked": "late weather 1; run; stray; tasks notify",
    "an older day on hold can be read again, and its late data waits": (
        "hold changing; late weather 500; wait 720; check; free; listed 0; report older"
    ),
    "an unreadable older day can be read again": (
        "hold unreadable; late weather 500; wait 720; check; free; listed 0; report older"
    ),
    "an older day on hold can be read again, and has no late data": "hold changing; wait 720; check; free; listed no",
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
    "dropped rows count by the thresholds, and the day runs again without them": (
        f"pulled drop; remove; GROWN; reason flights: the partner has removed 1 file, {FILE}, with 100 rows (9.09 %), "
        "which are dropped: reaches percent 1 and rows 10 of its source; figures 100 1 100; run; rows 2000; attempt 3; "
        "UNCHANGED; return file; wait 1; GROWN; run; rows 2100"
    ),
    "dropped and late rows are one change": (
        "pulled drop; remove; late flights 7; GROWN; reason flights grew by 7 rows (0.636 %), 1 object, 7 Bytes and "
        "the partner has removed 1 file"
    ),
    # What the monitoring does with the day.
    "people are notified of a day that has run again": "late weather 1; run; UNCHANGED; attempt 2; tasks notify",
    "a late day runs again before people are notified": "late weather 1; run; late weather 1 two; wait 1; tasks rerun",
    "people are notified of a day on hold": "late weather 1; run; lose weather late; VANISHED; tasks notify",
    "a running day has nothing to do": "late weather 1; run; late weather 1 two; freeze; RUNNING; tasks",
    # Cool-downs and ages.
    "a re-run of a day without rows starts the cool-down": "late flights 500; run; late flights 500 two; COOL_DOWN",
    "a re-run for late data that may have published is repaired within the cool-down": (
        "late flights 500; run; late flights 500 two; COOL_DOWN; fail spark; OUTCOME_UNKNOWN"
    ),
    "a released day that may have published is repaired within the cool-down": (
        "late flights 500; run; lose flights; release; COOL_DOWN; fail spark; OUTCOME_UNKNOWN; reason released by ; "
        "run; accepts"
    ),
    # The list of late days.
    "a message that is delivered again counts once": "after; arrive one; arrive one; listed 1",
    "objects that the published run has read list nothing": (
        "after; arrive one 500 untimed; wait 0.001; run; arrive one 500 -60; listed no; arrive two 500 -1; listed 1"
    ),
    "objects of a running day are looked at later": "after; late; freeze; arrive one; postponed 1; listed no",
    "a late day of the window is no older day": "wait 96; arrive few 1; listed 1; BELOW; report; listed no",
    "a day whose re-run fails is not forgotten": "late flights 500; GROWN; fail spark; after; report older",
    "a day below the thresholds is listed only if its age counts": (
        "late flights 5; BELOW; listed no; policy max_age_hours 175200; BELOW; listed 0"
    ),
    "the late data of a listed day is gone": (
        "late flights 500; check; listed 0; lose flights late; others; listed 0; check; listed no"
    ),
    "an object without rows": "wait 96; arrive one 0; only BELOW; listed no",
    "an arrival below the thresholds": "wait 96; arrive one 5; only BELOW; listed no",
    "an arrival below the thresholds whose age counts": (
        "wait 96; policy max_age_hours 175200; arrive one 5; only BELOW; listed 1"
    ),
    "an arrival that reaches a threshold": "wait 96; arrive one 500; only GROWN; listed 1",
    "a day that was rolled back is on one list": (
        "hold rolled_back; wait 96; arrive one; listed 1; only ROLLED_BACK; listed no; after; arrive two; older; "
        "listed no"
    ),
    "a listed day below the thresholds is shown once": "after; arrive one 5; older BELOW; listed no",
    "a listed day that has lost objects stays listed": "after; arrive one; lose flights; older VANISHED; listed 1",
    "a listed day that cannot be read": "after; late flights 500; damage manifest; see; older UNREADABLE",
    "a running day stays listed": "late flights 500; check; freeze; RUNNING; listed 0",
    "data that arrives during a run keeps the day listed": "after; late flights 500; freeze; see 1; publish; listed 1",
    "a run that finds nothing new removes its day": "after; see; wait 0.001; unchanged; listed no",
    "a listed day without late data is removed by the list": "after; see; older; listed no",
    "a slow clock of the client keeps no day listed": "after; see 300; older; listed no",
    "a day whose manifest is gone is on one list": "lose manifest; see; check; held manifest_gone; listed no",
    "a day whose version is kept leaves the list": "lose flights; check; after; see 300; keep; listed no",
    "a day whose version is kept has newer data": "lose flights; check; after; see 300; late flights 5; keep; listed 1",
    # New definitions.
    "data below the thresholds next to a new definition": (
        "late flights 5; define keep; BELOW; define rerun; NEW_DEFINITION; reason flights grew by 5 rows (0.5 %), 1 "
        "object, 5 Bytes: below percent 1 and rows 10 of its source; reason the definition has changed since the "
        "published run (weather (source): removed): the run reads with the new one"
    ),
    "a day whose version is kept is not published by a new definition": (
        "late flights 5 b; run; lose flights b; check; keep; define rerun query; KEPT"
    ),
    # Days that were never published, and decisions that are refused.
    "a rule fails in the first run": "unpublish; fail rule; free",
    "a day that was never published stays on hold until it is published": (
        "unpublish; fail audit; check; held audit 1; run; free; resolved attempt 2 has published"
    ),
    "a repeated release of a day that was never published starts it": (
        "unpublish; fail audit; release; release; resolves audit; run; accepts"
    ),
    "a repeated release of a day without its manifest starts a run that needs force": (
        "lose manifest; check; release; forced; MANIFEST_GONE; release; forced; rerun; attempt 2; release; unforced"
    ),
    "a repeated release of a day that was rolled back starts a run that needs force": (
        "hold rolled_back; release; forced; UNCHANGED; release; forced; rerun; attempt 2; release; unforced"
    ),
    "what cannot be decided is refused": (
        f"start; release ! attempt 2 of {PIPELINE} {DAY} is running; stop; keep ! is not on hold; unpublish; "
        "release ! published nothing for"
    ),
    # Rollbacks.
    "the published version and one that does not exist are not restored": (
        f"late; run; restore 2 ! version 2 of {DAY} is the published one; restore 3 ! no published version 3 .*"
        "slackwater history"
    ),
    "a failed attempt is no version, and may have published": (
        "late; run; late weather 9 b; fail spark; restore 3 ! no published version 3; restore 2; attempts 4"
    ),
    "a rollback needs a reason": "late; run; restore 1 no ! reason: missing",
    "nothing runs a day again that was rolled back": (
        "late; run; restore 1; publish; ROLLED_BACK; reason rolled back to version 1: bad file; tasks notify; freeze ! "
        f"slackwater late release {PIPELINE} --date {DAY}; start ! slackwater late release {PIPELINE} --date {DAY}; "
        "release; rerun; attempt 4; because late_data"
    ),
    "a rollback fails in its audit": "late; run; restore 1; refuse AuditFailed; known; free; version 2",
    "a rollback finds no version": "late; run; restore 1; refuse ObjectMissing; known; free; version 2",
    "a rollback fails in AWS": "late; run; restore 1; refuse CloudError; unknown; free; version 2",
    "a load step of a rollback fails": "late; run; restore 1; commit; refuse ObjectMissing; unknown; free; version 2",
    "a refused rollback makes no unknown outcome known": (
        "late; run; late weather 9 b; fail spark; restore 1; refuse AuditFailed; unknown"
    ),
    # Weeks that read the published days of another pipeline.
    "a changed day holds the week until a person releases it": (
        f"week hold; UNCHANGED; daily other 11; TABLE_CHANGED; reason days has 1 changed day, "
        "10 -> 11 rows (+10.0 %), 11 late rows (15.7 %): "
        f"tables.days.on_change is hold; reason `slackwater late release {PIPELINE} --date {DAY} --reason TEXT` runs "
        "the day again; held table_changed; release; RELEASED; run; attempt 2; UNCHANGED"
    ),
    "a kept change is held again only when the day changes once more": (
        "week hold; daily other 11; check; keep; KEPT; daily another 12; TABLE_CHANGED"
    ),
    "the first version of a changed day is back": "week hold; daily other 11; check; daily rows0 10; UNCHANGED; free",
    "a day with fewer rows holds the week by its own rule": "week hold; daily other 3; SHRANK",
    "a change of an ignored table": (
        "week ignore; daily other 11; TABLE_IGNORED; reason days has 1 changed day, 10 -> 11 rows (; reason ): "
        "tables.days.on_change is ignore; figures 11 1; free; run; rows 71"
    ),
    "lost rows of an ignored table": "week ignore; daily other 3; TABLE_IGNORED; figures 3 1; free; run; rows 63",
    "a run with an ignored table may have published": "week ignore; daily other 11; start; stop; OUTCOME_UNKNOWN",
    "a cycle ends on hold": (
        "week auto; cycle 10; was GROWN; attempt 11; cycle 40; was REPEATED; attempt 11; reason changed tables have "
        "run the day again 10 times within 24 hours: find out whether its rows lead back to its inputs, and if not, "
        f"raise late.cool_down_hours; reason `slackwater late release {PIPELINE} --date {DAY} --reason TEXT` runs it "
        "again; held repeated"
    ),
    "a release runs the day of a cycle once": "week auto; cycle 12; release; RELEASED; turn; free; REPEATED",
    "a kept cycle rests until the table changes again": (
        "week auto; cycle 20; keep; KEPT; daily newer 50; wait 1; REPEATED"
    ),
    "the tables of a cycle are those of the published run again": (
        "week auto; cycle 20; daily turn9 19; UNCHANGED; free"
    ),
    "a cool-down of three hours lets a table change all the time": "week auto; cycle 30 3; was GROWN; attempt 31",
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

    def do_week(self, on_change: str) -> None:
        self.world, self.turns = Weeks(on_change=on_change), 0
        self.do_run()

    def do_daily(self, content: str, rows: str) -> None:
        """Publish a version of the last day of the week."""
        self.world.publish_daily(SUNDAY, content=content.replace("rows0", "rows 0"), rows=int(rows), attempt=2)

    def do_turn(self) -> None:
        """Run the week, which changes one of its days, as a load step could."""
        self.do_run()
        self.turns += 1
        self.do_daily(f"turn{self.turns}", str(10 + self.turns))

    def do_cycle(self, checks: str, hours: str = "1.1") -> None:
        if not self.turns:
            self.do_daily("turn0", "10")
        for _ in range(int(checks)):
            self.do_wait(hours)
            self.decision = week_of(self.world)
            if self.decision.decision is LateDecision.RERUN:
                self.do_turn()

    def do_was(self, rule: str) -> None:
        assert self.decision.rule is DecisionRule[rule]

    def do_policy(self, key: str, value: str) -> None:
        definition = self.world.project.pipelines[PIPELINE]
        late = definition.late.model_copy(update={key: float(value)})
        changed = definition.model_copy(update={"late": late})
        self.world.project = self.world.project.model_copy(update={"pipelines": {PIPELINE: changed}})

    def do_define(self, on_definition: str, what: str = "") -> None:
        """Remove a source, or change a query."""
        definition = self.world.project.pipelines[PIPELINE]
        step = definition.steps[definition.publish.step].model_copy(update={"parameters": {"other": 1}})
        query = {"steps": {**definition.steps, definition.publish.step: step}}
        changes = query if what else {"sources": ("flights",), "steps": STEPS}
        define(self.world, on_definition=on_definition, **changes)

    def do_code(self, job: str = "") -> None:
        self.world.project = self.world.project.model_copy(update={"code": CodeDigests(job=job)})

    def do_after(self) -> None:
        """The window of seven days begins on 2013-03-13."""
        self.world.time = datetime(2013, 3, 20, 18, tzinfo=UTC)

    def do_arrive(self, name: str, rows: str = "500", seconds: str = "0") -> None:
        """Write an object, and deliver its event so many seconds later."""
        self.do_late("flights", rows, name)
        time = None if seconds == "untimed" else self.world.time + timedelta(seconds=int(seconds))
        event = ObjectWritten(id=name, key=self.uri("flights", name).removeprefix("s3://raw/"), time=time)
        checks = ArrivalChecks(
            project=self.world.project, table=self.world.table, executions=self.world.executions,
            start=lambda **_: None, send_later=lambda _: None, update_table=lambda *_: None,
            wake_source=lambda *_: None, now=self.world.now,
        )  # fmt: skip
        self.result = checks.start_checks({name: event.model_dump_json()})

    def do_see(self, seconds: str = "0") -> None:
        """New data is seen, by a clock that is so many seconds ahead."""
        at = self.world.time + timedelta(seconds=int(seconds))
        self.world.table.record_late_day(PIPELINE, DAY, at=at, keys=["k"])

    def do_damage(self, what: str) -> None:
        self.world.store.put(self.uri(what), b"{")

    def do_unpublish(self) -> None:
        """Forget that the day was ever run."""
        del self.world.table.by_day[PIPELINE, DAY]
        for key in [key for key in self.world.table.records if key[:2] == (PIPELINE, DAY)]:
            del self.world.table.records[key]

    def do_hold(self, rule: str) -> None:
        hold = Hold(rule=rule, reason="r", since=self.world.now())
        self.world.table.save(self.record.model_copy(update={"hold": hold}))

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

    def do_publish(self) -> None:
        """Publish the run that was frozen."""
        run = self.record.active.run
        self.world.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
        self.world.recorder.record_published(run)

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

    def do_restore(self, version: str, reason: str = "bad file") -> None:
        self.world.freeze(DAY, rollback=int(version), reason="" if reason == "no" else "bad file")

    def do_commit(self) -> None:
        self.world.store.put(publication_uri(self.record.active.run.prefix), b"{}")

    def do_refuse(self, error: str) -> None:
        run = self.record.active.run
        self.world.store.put(failure_uri(run.prefix), f"{error}: x".encode())
        self.world.fail(run)

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

    def do_figures(self, rows: str, files: str, size: str = "0") -> None:
        figures = self.decision.figures
        assert (figures.late_rows, figures.changed_files, figures.late_bytes) == (int(rows), int(files), int(size))

    def do_forced(self) -> None:
        assert self.is_forced

    def do_unforced(self) -> None:
        assert not self.is_forced

    def do_resolved(self, *words: str) -> None:
        assert self.record.resolution.reason == " ".join(words)

    def do_resolves(self, rule: str) -> None:
        assert self.record.resolution.hold.rule == rule

    def do_tasks(self, *actions: str) -> None:
        assert tuple(task.action for task in day_tasks(self.world.check()) if task.date == DAY) == actions

    def do_only(self, rule: str) -> None:
        """A check of the day alone."""
        (decision,) = self.world.checker.check(pipeline=PIPELINE, as_of=None, dates=[DAY]).days
        assert decision.rule is DecisionRule[rule]

    def do_others(self) -> None:
        self.world.checker.check(pipeline=PIPELINE, as_of=None, dates=["2013-03-11"])

    def do_listed(self, objects: str) -> None:
        listed = self.world.table.late_day(PIPELINE, DAY)
        assert (str(listed.objects) if listed else "no") == objects

    def do_older(self, *rules: str) -> None:
        assert tuple(day.decision.rule.name for day in older_days(self.world.checker, [PIPELINE]).days) == rules

    def do_report(self, older: str = "") -> None:
        assert (DAY in self.world.check().older) is bool(older)

    def do_postponed(self, number: str) -> None:
        assert self.result.postponed == int(number)

    def do_unchanged(self) -> None:
        assert (
            freezer_of(self.world).freeze(pipeline=PIPELINE, date=DAY, execution="run", correlation_id="c").action
            is FreezeAction.UNCHANGED
        )

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
        assert made.action == "ended"
        at = made.at.strftime("%Y-%m-%d %H:%M")
        assert describe_decision(made) == f"ended on {at} UTC: no new data since the published run"

    def do_released(self) -> None:
        made = self.record.resolution
        assert (made.action, made.reason, made.principal) == ("released", "r", "arn:aws:iam::1:user/ana")

    def do_known(self) -> None:
        assert not self.record.outcome_unknown

    def do_unknown(self) -> None:
        assert self.record.outcome_unknown

    def do_attempt(self, number: str) -> None:
        assert self.record.published.run.attempt == self.run.attempt == int(number)

    def do_attempts(self, number: str) -> None:
        assert self.record.attempts == int(number)

    def do_because(self, *reasons: str) -> None:
        assert self.world.table.run(PIPELINE, DAY, self.run.attempt).reasons == reasons

    def do_version(self, number: str) -> None:
        assert (self.record.active, self.record.published.run.attempt) == (None, int(number))

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
