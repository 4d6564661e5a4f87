"""`slackwater refs` and `slackwater runs --date`: the versions of a day's data, and what each step did."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from slackwater.arrow.reference import StepRecord
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.attempt_files import loads_uri
from slackwater.runs.record import Loads
from tests.example_project import PROJECT
from tests.fakes_check import World
from tests.fakes_cli import a_client, use_client
from tests.fakes_runs import store_stage

pytestmark = pytest.mark.unit

DATE = "2013-03-10"
QUERY = {"query": "SELECT carrier, count(*) AS n\n  FROM cleaned\n GROUP BY carrier"}
CHECKED = {"rule": "not_null", "columns": ["carrier"], "severity": "warn", "checked": 900, "failed": 2, "examples": []}


class Clock:
    """A clock at 01:00 UTC."""

    @staticmethod
    def now(zone):
        return datetime(2013, 3, 12, 1, tzinfo=UTC).astimezone(zone)


def step(name: str, of: str, rows_in: dict[str, int | None], rows_out: int | None, **more) -> StepRecord:
    values = {"parameters": {}, "seconds": None, **more}
    return StepRecord(name=name, step=of, rows_in=rows_in, rows_out=rows_out, **values)


CLEANED = (
    step("joined", "join", {"flights": 900, "weather": None}, 900, parameters={"keys": ["origin"], "how": "left"}),
    step("cleaned", "clean_nan", {"joined": 900}, 899, effect={"filled.age": 3, "dropped": 1}),
)
COUNTED = (
    step("checked", "data_quality", {"cleaned": 899}, 899, effect={"rows_rejected": 0, "results": [CHECKED]}),
    step("counted", "sql", {"checked": 899}, 16, parameters=QUERY, bytes_in={"checked": None}, bytes_out=900),
)
LOADED = step("report", "write_csv", {"counted": 16}, 16, effect={"files": 1}, seconds=0.2, bytes_in={"counted": 900})


TWO_STAGES = Pipeline.model_validate(
    {
        "pipeline": "daily_delays",
        "timezone": "America/New_York",
        "sources": ["flights", "weather"],
        "steps": {
            "cleaned": {"step": "join", "depends_on": ["flights", "weather"], "exchange": True},
            "counted": {"step": "sql", "depends_on": ["cleaned"]},
        },
        "publish": {"step": "counted", "key": ["date"]},
    }
)


@pytest.fixture
def world(monkeypatch):
    """A day with its input, and the client of a command on it."""
    world = World()
    world.add("flights", DATE, "12")
    world.project = world.project.model_copy(update={"pipelines": {"daily_delays": TWO_STAGES}})
    deployment = SimpleNamespace(state_table="")
    use_client(monkeypatch, a_client(world.project, deployment=deployment, run_table=world.table, store=world.store))
    return world


def run_stages(world, *, force=False):
    """Freeze a run and finish its two stages."""
    run = world.freeze(DATE, force=force)
    first = store_stage(world.store, run, "cleaned", rows=899, files=2, steps=CLEANED)
    store_stage(world.store, run, "counted", rows=16, files=1, steps=COUNTED, parents=[first])
    return run


def publish(world, *, force=False):
    """Run the day, with a load step."""
    run = run_stages(world, force=force)
    world.store.put(loads_uri(run.prefix), Loads(steps=(LOADED,)).model_dump_json().encode())
    return world.publish(DATE)


def remove(world, part):
    world.store.delete([uri for uri in world.store.objects if part in uri])


@pytest.fixture
def printed(printed_by):
    """Run a command on the day, and return what it has printed."""
    return lambda command, **code: printed_by(command, "daily_delays", "--date", DATE, *PROJECT, **code)


@pytest.fixture
def document(document_of):
    """Run a command on the day, and return its document."""
    return lambda command: document_of(command, "daily_delays", "--date", DATE, *PROJECT)


class TestRefs:
    def test_input_stages_and_publication_are_listed_in_order(self, world, document):
        published = publish(world)
        answer = document("refs")
        assert (answer["pipeline"], answer["date"]) == ("daily_delays", DATE)
        first, cleaned, counted, last = answer["versions"]
        assert [version["type"] for version in answer["versions"]] == ["input", "stage", "stage", "published"]
        assert [version["state"] for version in (first, cleaned, counted)] == ["present"] * 3
        assert (first["uri"], first["rows"], first["files"]) == (published.manifest, 10, 1)
        assert (cleaned["name"], cleaned["rows"], cleaned["files"]) == ("cleaned", 899, 2)
        assert cleaned["parents"] == [first["uri"]]
        assert counted["parents"] == [cleaned["uri"]]
        assert last["parents"] == [counted["uri"]]
        assert last["uri"] == f"t VERSION AS OF '{published.tag}'"
        assert (last["rows"], last["snapshot_id"]) == (3, "1")
        assert all(version["created"] for version in answer["versions"])

    def test_two_attempts_are_told_apart(self, world, document):
        publish(world)
        second = publish(world, force=True)
        remove(world, "/1/counted/")
        remove(world, "/arrow/daily_delays/2013-03-10/" + second.run_id + "/1/")
        answer = document("refs")["versions"]
        states = [(version["attempt"], version["type"], version.get("state")) for version in answer]
        assert states == [
            (1, "input", "present"),
            (1, "stage", "removed"),
            (1, "stage", "missing"),
            (1, "published", None),
            (2, "input", "present"),
            (2, "stage", "present"),
            (2, "stage", "present"),
            (2, "published", None),
        ]

    def test_a_version_of_which_some_files_are_missing_is_incomplete(self, world, document):
        run_stages(world)
        remove(world, "/cleaned/00001.arrow")
        states = [version["state"] for version in document("refs")["versions"]]
        assert states == ["present", "incomplete", "present"]

    def test_a_manifest_of_another_format_is_named(self, world, printed):
        run = run_stages(world)
        world.store.put(f"{run.stage_prefix('cleaned')}manifest.json", b'{"version": 2}')
        assert "/1/cleaned/manifest.json is not a manifest that this version can read" in printed("refs", code=1).err

    def test_a_removed_input_manifest_is_shown(self, world, document):
        run = world.freeze(DATE)
        world.store.delete([run.manifest])
        (version,) = document("refs")["versions"]
        assert version["state"] == "missing"
        assert "created" not in version

    def test_a_day_without_runs_has_none(self, world, printed, document):
        assert document("refs")["versions"] == []
        assert "no runs of daily_delays for 2013-03-10 yet" in printed("refs").out

    def test_the_table_names_the_version_that_another_was_made_from(self, world, printed):
        publish(world)
        lines = printed("refs").out.splitlines()
        assert lines[0].split("  ")[0] == "attempt"
        assert [line.split()[:2] for line in lines[1:5]] == [
            ["1", "input"],
            ["1", "cleaned"],
            ["1", "counted"],
            ["1", "published"],
        ]
        assert " input " in lines[2][20:]
        assert " cleaned " in lines[3][20:]
        assert lines[6].startswith("attempt 1, cleaned: s3://exchange/runs/daily_delays/")


class TestRunsOfADay:
    def test_each_step_has_rows_seconds_parameters_and_effect(self, world, document):
        publish(world)
        (only,) = document("runs")["runs"]
        steps = [(step.pop("stage"), StepRecord.model_validate(step)) for step in only["steps"]]
        assert steps == [
            *(("cleaned", record) for record in CLEANED),
            *(("counted", record) for record in COUNTED),
            (None, LOADED),
        ]
        assert only["missing"] == []

    def test_the_json_document_has_the_steps_of_all_attempts_and_the_table_those_of_the_last(
        self, world, printed, document
    ):
        publish(world)
        run_stages(world, force=True)
        assert [len(item["steps"]) for item in document("runs")["runs"]] == [5, 4]
        shown = printed("runs").out
        assert "daily_delays 2013-03-10, attempt 2" in shown
        assert "attempt 1" not in shown

    def test_people_see_one_line_for_each_step_parameter_and_effect(self, world, printed):
        publish(world)
        lines = printed("runs").out.splitlines()
        table = lines.index("daily_delays 2013-03-10, attempt 1") + 1
        assert [" ".join(line.split()) for line in lines[table : table + 6]] == [
            "stage name step rows in rows out seconds bytes in bytes out",
            "cleaned joined join flights 900, weather not counted 900",
            "cleaned cleaned clean_nan joined 900 899",
            "counted checked data_quality cleaned 899 899",
            "counted counted sql checked 899 16 900",
            "load report write_csv counted 16 16 0.2 900",
        ]
        assert lines[table + 6 :] == [
            "joined, with:",
            '  keys: ["origin"]',
            "  how: left",
            "cleaned, effect:",
            "  filled.age: 3",
            "  dropped: 1",
            "checked, effect:",
            "  rows_rejected: 0",
            '  results: rule=not_null columns=["carrier"] severity=warn checked=900 failed=2 examples=[]',
            "counted, with:",
            "  query: SELECT carrier, count(*) AS n FROM cleaned GROUP BY carrier",
            "report, effect:",
            "  files: 1",
        ]

    def test_a_removed_manifest_is_shown_as_such(self, world, printed, document):
        publish(world)
        remove(world, "/cleaned/manifest.json")
        (only,) = document("runs")["runs"]
        assert [step["name"] for step in only["steps"]] == ["checked", "counted", "report"]
        assert [uri.rpartition("/1/")[2] for uri in only["missing"]] == ["cleaned/manifest.json"]
        assert "cleaned/manifest.json does not exist any more" in printed("runs").out

    def test_a_failed_run_has_the_steps_of_its_finished_stages(self, world, printed, document):
        failed = world.freeze(DATE)
        recorder = world.recorder
        recorder.record_failure(failed, error="DataError", cause="a rule failed")
        (only,) = document("runs")["runs"]
        assert (only["state"], only["steps"], only["missing"]) == ("failed", [], [])
        shown = printed("runs").out
        assert "daily_delays 2013-03-10, attempt 1: no stage has finished" in shown
        assert "DataError: a rule failed" in shown

    def test_each_manifest_is_read_once(self, world, printed, monkeypatch):
        publish(world)
        read, get = [], world.store.get
        monkeypatch.setattr(world.store, "get", lambda uri: read.append(uri) or get(uri))
        printed("runs")
        assert sorted(uri.rpartition("/1/")[2] for uri in read) == [
            "cleaned/manifest.json",
            "counted/manifest.json",
            "loads.json",
        ]

    def test_a_day_without_runs_has_none(self, world, printed, document):
        assert document("runs") == {"runs": []}
        assert printed("runs").out.startswith("no runs for 2013-03-10 yet (slackwater run daily_delays --date")

    def test_a_list_is_narrowed_by_days_state_and_number(self, world, document_of, printed_by):
        for date in ("2013-03-08", "2013-03-09", DATE):
            world.add("flights", date, "12")
            world.publish(date)
        world.fail(world.freeze(DATE, force=True))

        def listed(*words):
            runs = document_of("runs", *words, *PROJECT)["runs"]
            return [(run["date"][-2:], run["attempt"]) for run in runs]

        assert listed("--from", "2013-03-09") == [("09", 1), ("10", 1), ("10", 2)]
        assert listed("daily_delays", "--to", "2013-03-09") == [("08", 1), ("09", 1)]
        assert listed("--date", "2013-03-08..09") == [("08", 1), ("09", 1)]
        assert listed("--state", "failed") == [("10", 2)]
        assert listed("--state", "published", "--limit", "2") == [("09", 1), ("10", 1)]
        assert printed_by("runs", "--to", "2013-03-01", *PROJECT).out == "no run matches --to\n"
        both = printed_by("runs", "--date", DATE, "--from", DATE, *PROJECT, code=2).err
        assert "--date and --from, --to exclude each other: list one day, or a range of days" in both

    def test_yesterday_is_a_day_in_the_timezone_of_the_pipeline(self, world, printed_by, monkeypatch):
        # Where the pipeline is, the day is still the one before.
        monkeypatch.setattr("slackwater.cli.command.datetime", Clock)
        assert printed_by("runs", "daily_delays", "--date", "yesterday", *PROJECT).out.startswith(
            "no runs for 2013-03-10 yet"
        )

    def test_without_a_date_no_manifest_is_read(self, world, document_of, monkeypatch):
        publish(world)
        monkeypatch.setattr(world.store, "get", None)
        (only,) = document_of("runs", "daily_delays", *PROJECT)["runs"]
        assert "steps" not in only
