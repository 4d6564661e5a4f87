"""`slackwater run --select`: several pipelines one after the other, the first failure, and an interruption."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from slackwater.client.days.runs import RunResult, RunSeconds
from slackwater.errors import RunFailed
from tests.example_project import PROJECT
from tests.fakes_cli import use_client
from tests.unit.client.test_runs import PUBLICATION, RUN

pytestmark = pytest.mark.unit

DATE = "2013-03-10"
DAILY, WEEKLY = "daily_delays", "weekly_delays"
SELECT = ["run", "--select", "+weekly_delays", "--date", DATE, *PROJECT]


@pytest.fixture
def running(monkeypatch):
    """Let the command use a client whose runs end so: by default published, else with an error. Return its calls."""

    def running(**errors):
        calls = []

        def start(name, date, *, force):
            def wait(*, on_progress):
                calls.append((name, date, force, "ended"))
                if name in errors:
                    raise errors[name]
                return RunResult(
                    outcome="published", run=RUN.model_copy(update={"pipeline": name, "date": date}),
                    publication=PUBLICATION, seconds=RunSeconds(total=1.0), execution="arn:e", files_not_taken={},
                )  # fmt: skip

            calls.append((name, date, force, "started"))
            return SimpleNamespace(wait=wait)

        use_client(monkeypatch, SimpleNamespace(run=start))
        return calls

    return running


def test_each_pipeline_runs_when_those_whose_tables_it_reads_have_ended(running, printed_by):
    calls = running()
    shown = printed_by(*SELECT, "--force")
    assert calls == [(name, DATE, True, state) for name in (DAILY, WEEKLY) for state in ("started", "ended")]
    assert [line for line in shown.err.splitlines() if " of " in line] == [
        f"1 of 2: {DAILY} for {DATE}",
        f"2 of 2: {WEEKLY} for {DATE}",
    ]
    published = [line.partition(":")[0] for line in shown.out.splitlines() if "published" in line]
    assert published == [f"{DAILY} {DATE}", f"{WEEKLY} {DATE}"]


def test_the_first_failure_ends_the_command_and_names_what_was_not_run(running, printed_by, document_of):
    calls = running(**{DAILY: RunFailed("it broke")})
    error = printed_by(*SELECT, code=1).err.partition("error: ")[2]
    assert error.splitlines() == [
        f"{DAILY} for {DATE}: it broke",
        f"  its log: slackwater logs {DAILY} --date {DATE}",
        f"  not run: {WEEKLY}",
    ]
    assert {name for name, *_ in calls} == {DAILY}
    document = document_of(*SELECT, code=1)
    assert (document["pipelines"], document["runs"], document["failed"]) == ([DAILY, WEEKLY], [], DAILY)
    assert (document["not_run"], document["failure"].splitlines()[0]) == ([WEEKLY], f"{DAILY} for {DATE}: it broke")
    running(**{WEEKLY: RunFailed("it broke")})
    shown = printed_by(*SELECT, code=1)
    assert (f"{DAILY} {DATE}: published" in shown.out, "not run" in shown.err) == (True, False)
    running()
    assert document_of(*SELECT)["failed"] is None


def test_an_interruption_names_what_was_not_run(running, printed_by):
    running(**{DAILY: KeyboardInterrupt()})
    assert printed_by(*SELECT, code=130).err.splitlines()[-3:] == [
        f"The run of {DAILY} continues in the cloud. To see its state: slackwater runs {DAILY}",
        f"not run: {WEEKLY}",
        "interrupted",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([DAILY, "--select", "daily_delays+", "--date", DATE], "PIPELINE: name one pipeline, or several with --select"),
        (["--select", "dayly_delays+", "--date", DATE], "--select: 'dayly_delays+' names no pipeline of the project"),
        (["--select", "daily_delays+", "--from", DATE, "--to", DATE], "--select: it runs one day of each pipeline"),
        (["--select", "daily_delays+"], "--date is missing"),
        (["--select", "daily_delays+", "--date", "9999-01-01"], "--date: 9999-01-01 has not begun"),
    ],
)
def test_a_wrong_selection_is_named_and_runs_nothing(running, printed_by, arguments, expected):
    calls = running()
    assert expected in printed_by("run", *arguments, *PROJECT, code=2).err
    assert calls == []
