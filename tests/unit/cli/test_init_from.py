"""`slackwater init --from`: projects for files, folders and listings with a user's own data."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from slackwater.dev.testing.read_tests import read_tests
from slackwater.project.project import load_project
from tests.fakes_web import Reply, Web

pytestmark = pytest.mark.unit

HEADER = "Ride ID,Started At,Station,Fare\n"
RIDES = (
    f"{HEADER}1,2024-03-09 09:12:00,Chelsea,5.25\n2,2024-03-09 10:41:27,Harlem,n/a\n3,2024-03-09 23:59:00,,2\n"
    "4,2024-03-09 12:00:00,Harlem,1.5\n5,2024-03-10 00:00:00,Chelsea,4\n6,2024-03-10 03:00:00,Harlem,4\n"
)
IGNORED = ".gitignore"
OF_RIDES = sorted([IGNORED, "pipelines/daily_rides.yaml", "sources/rides.yaml", "tests/daily_rides.yaml"])
TIMEZONE = "DECIDE the timezone"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The current folder, with three files in `partner/`, of which the last one has rows."""
    (tmp_path / "partner").mkdir()
    for name, content in (("2024-03-08", f"{HEADER}9,broken,,\n"), ("2024-03-09", RIDES)):
        (tmp_path / "partner" / f"rides-{name}-1.csv").write_text(content)
    (tmp_path / "partner" / ".hidden.csv").write_text("")
    (tmp_path / "partner" / "README").write_text("no data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def source_of(project: str, name: str = "rides") -> dict:
    return yaml.safe_load(Path(project, "sources", f"{name}.yaml").read_text())


def decide(project: str, timezone: str = "America/New_York") -> None:
    for path in Path(project).glob("*/*.yaml"):
        path.write_text(path.read_text().replace(TIMEZONE, timezone))


def test_a_folder_of_files_with_dates_is_one_pulled_source(document_of, printed_by):
    document = document_of("init", "new", "--from", "partner")
    assert (document["project"], document["files"]) == (str(Path("new").resolve()), OF_RIDES)
    assert [(item["file"], item["field"], item["is_required"]) for item in document["decisions"]] == [
        ("sources/rides.yaml", "timestamp.timezone", True),
        ("sources/rides.yaml", "pull.url", False),
        ("pipelines/daily_rides.yaml", "timezone", True),
    ]
    assert document["next_commands"] == [
        "slackwater pipeline validate",
        "slackwater test",
        "slackwater dev daily_rides --date 2024-03-09 --input rides=../partner/rides-2024-03-09-1.csv",
        "slackwater local up",
        "slackwater deploy",
        "slackwater pull rides --as-of 2024-03-09",
        "slackwater run daily_rides --date 2024-03-09",
        'slackwater query "SELECT * FROM daily_rides"',
    ]
    assert source_of("new")["pull"]["files"] == "rides-{date}*.csv"
    problems = document_of("pipeline", "validate", "--project", "new", code=2)["problems"]
    assert [(Path(problem["file"]).name, problem["place"]) for problem in problems] == [
        ("rides.yaml", "timestamp.timezone"),
        ("daily_rides.yaml", "timezone"),
    ]
    decide("new")
    assert "valid: 1 source and 1 pipeline" in printed_by("pipeline", "validate", "--project", "new").out
    pipeline = load_project(Path("new")).pipeline("daily_rides")
    assert (pipeline.timezone, pipeline.publish.key) == ("America/New_York", ("date", "station"))


def test_the_test_has_rows_of_one_day_and_what_the_pipeline_counts(printed_by):
    printed_by("init", "new", "--from", "partner/rides-2024-03-09-1.csv")
    decide("new")
    read = read_tests(Path("new"))
    assert read.problems == ()
    (test,) = read.tests
    assert test.definition.date == "2024-03-09"
    assert [row["Ride ID"] for row in test.definition.inputs["rides"]] == [1, 2, 3, 4]
    counts = {row["station"]: row["events"] for row in test.definition.expect["rides_by_station"]}
    assert counts == {"Chelsea": 1, "Harlem": 2, "unknown": 1}


def test_people_see_the_decisions_file_by_file_and_the_next_commands(printed_by):
    lines = printed_by("init", "new", "--from", "partner").out.splitlines()
    assert lines[:7] == [
        "wrote 4 files to new",
        "  sources/rides.yaml",
        "    DECIDE timestamp.timezone: there are timestamps without an offset from UTC",
        "    check pull.url: a placeholder: name the folder of the partner's files",
        "  pipelines/daily_rides.yaml",
        "    DECIDE timezone: the same as in sources/rides.yaml",
        "  tests/daily_rides.yaml",
    ]
    assert lines[8:10] == ["Next, in new, after the decisions:", "  slackwater pipeline validate"]


def test_json_without_a_date_in_its_name_is_pushed(document_of):
    rows = [{"id": f"o-{number}", "at": f"2024-03-04T{number:02}:00:00Z", "order": 1.5} for number in range(9)]
    Path("orders.ndjson").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    document = document_of("init", "new", "--from", "orders.ndjson")
    assert [(item["file"], item["field"], item["is_required"]) for item in document["decisions"]] == [
        ("pipelines/daily_orders.yaml", "timezone", False),
    ]
    assert "slackwater push orders ../orders.ndjson" in document["next_commands"]
    source = source_of("new", "orders")
    assert (source["push"], "pull" in source) == ({}, False)
    assert document_of("pipeline", "validate", "--project", "new")["problems"] == []
    (test,) = read_tests(Path("new")).tests
    assert test.definition.expect == {"orders_by_hour": [{"hour": hour, "events": 1} for hour in range(5)]}


def test_the_rows_of_the_test_keep_nested_values(document_of):
    visits = [{"no": n, "visit": {"at": f"2024-03-04T{n:02}:00:00Z", "room": f"r{n % 2}"}} for n in range(12)]
    Path("visits.ndjson").write_text("".join(f"{json.dumps({**row, 'tags': [1]})}\n" for row in visits))
    document_of("init", "new", "--from", "visits.ndjson")
    assert source_of("new", "visits")["fields"]["visit_room"] == {"type": "string", "from": "visit.room"}
    (test,) = read_tests(Path("new")).tests
    rows = test.definition.inputs["visits"]
    assert rows == visits[: len(rows)]
    counts = {row["visit_room"]: row["events"] for row in test.definition.expect["visits_by_visit_room"]}
    assert sum(counts.values()) == len(rows)


def test_files_of_two_shops_with_equal_columns_are_one_source(document_of):
    for name in ("faro", "sao_joao"):
        Path(f"partner/{name}_sales_2024-03-09.csv").write_text(RIDES)
    Path("partner/all_sales_2024-03-09.ndjson").write_text('{"id": "a", "at": "2024-03-09T05:00:00Z"}\n')
    Path("partner/faro_stock_2024-03-09.csv").write_text(RIDES.replace("Fare", "Stock"))
    document = document_of("init", "new", "--from", "partner")
    names = {name for name in document["files"] if name.startswith("sources/")}
    assert names == {f"sources/{name}.yaml" for name in ("rides", "sales", "all_sales", "faro_stock")}
    assert source_of("new", "sales")["pull"]["files"] == "*_sales_{date}.csv"
    problem = "one source for faro_sales_{date}.csv, sao_joao_sales_{date}.csv: their columns are equal"
    assert problem in [item["problem"] for item in document["decisions"]]
    decide("new")
    assert document_of("pipeline", "validate", "--project", "new")["problems"] == []


def test_kinds_without_a_word_in_common_stay_two_sources(document_of):
    for name in ("faro", "evora"):
        Path(f"partner/{name}_2024-03-09.csv").write_text(RIDES)
    files = document_of("init", "new", "--from", "partner")["files"]
    assert {"sources/faro.yaml", "sources/evora.yaml"} <= {*files}


def counts(*keys: str) -> str:
    times = {"as_of": "2024-03-11T00:00:00Z", "through": "2024-03-10T00:00:00Z"}
    return json.dumps({**times, "counts": dict.fromkeys(keys, 7)}, indent=1)


def test_a_file_of_counts_belongs_to_the_source_with_its_name(document_of):
    Path("partner/trips-2024-03-09.csv").write_text(RIDES)
    Path("partner/rides-sent-2024-03-09.json").write_text(counts("2024-03-09T05:00Z", "2024-03-09T05:10Z"))
    document = document_of("init", "new", "--from", "partner")
    assert {name for name in document["files"] if name.startswith("sources/")} == {
        "sources/rides.yaml",
        "sources/trips.yaml",
    }
    assert source_of("new")["counts"] == {"window": "10m", "files": "rides-sent-{date}.json"}
    assert "counts" not in source_of("new", "trips")
    assert ("sources/rides.yaml", "counts") in [(item["file"], item["field"]) for item in document["decisions"]]
    decide("new")
    assert document_of("pipeline", "validate", "--project", "new")["problems"] == []


def test_counts_that_may_be_of_two_sources_are_named_in_both(document_of):
    Path("partner/trips-2024-03-09.csv").write_text(RIDES)
    Path("partner/sent-2024-03-09.json").write_text(counts("2024-03-09", "2024-03-08"))
    document_of("init", "new", "--from", "partner")
    for name in ("rides", "trips"):
        assert "counts" not in source_of("new", name)
        assert "# counts: {window: day, files: 'sent-{date}.json'}" in Path(f"new/sources/{name}.yaml").read_text()


def test_a_file_that_cannot_be_read_does_not_stop_the_others(document_of, printed_by):
    Path("partner/notes-2024-03-09.json").write_text('{\n"a": 1\n}\n')
    document = document_of("init", "new", "--from", "partner")
    assert document["files"] == OF_RIDES
    assert [item["file"] for item in document["unread"]] == ["partner/notes-2024-03-09.json"]
    shown = " ".join(printed_by("init", "other", "--from", "partner").err.split())
    assert "left out, because it could not be read: notes-2024-03-09.json: one JSON object with 0 lists" in shown
    assert "only files with counts" in printed_by("init", "third", "--from", write_counts(), code=2).err


def write_counts() -> str:
    Path("sent-2024-03-09.json").write_text(counts("2024-03-09T05:00Z"))
    return "sent-2024-03-09.json"


NAMES = ("rides-2024-03-08-1.csv", "rides-2024-03-09-1.csv")
INDEX = '<a href="../">..</a><a href="old/">old</a>' + "".join(f'<a href="{name}">{name}</a>' for name in NAMES)
LISTINGS = {
    "text/html": INDEX,
    "application/json": json.dumps([{"name": name} for name in (*NAMES, "old/rides-2024-03-10-1.csv")]),
}


@pytest.mark.parametrize("content_type", LISTINGS)
def test_the_files_of_a_listing_are_pulled_from_it(web: Web, monkeypatch, document_of, content_type):
    monkeypatch.setenv("SLACKWATER_SET", f"outbound_allow={web.entry}")
    web.on("/out/", Reply(body=LISTINGS[content_type].encode(), headers={"content-type": content_type}))
    web.on(f"/out/{NAMES[1]}", Reply(body=RIDES.encode()))
    document = document_of("init", "new", "--from", f"{web.url}/out/")
    assert document["files"] == OF_RIDES
    assert {item["field"] for item in document["decisions"]} == {"timestamp.timezone", "timezone"}
    pull = source_of("new")["pull"]
    assert (pull["url"], pull["files"]) == (f"{web.url}/out", "rides-{date}*.csv")
    assert pull["listing"] == content_type.rpartition("/")[2]
    assert "slackwater pull rides --as-of 2024-03-09" in document["next_commands"]
    assert not any("slackwater dev" in command for command in document["next_commands"])


def test_a_listing_without_files_is_refused(web: Web, monkeypatch, printed_by):
    monkeypatch.setenv("SLACKWATER_SET", f"outbound_allow={web.entry}")
    web.on("/out/", Reply(body=b'<a href="x.pdf">x</a>', headers={"content-type": "text/html"}))
    shown = printed_by("init", "new", "--from", f"{web.url}/out/", code=2).err
    assert f"--from: {web.url}/out/: it lists no file with one of the suffixes .csv" in shown


def test_a_url_of_one_file_is_pulled_from_its_folder(web: Web, monkeypatch, document_of):
    monkeypatch.setenv("SLACKWATER_SET", f"outbound_allow={web.entry}")
    web.on(f"/out/{NAMES[1]}?key=secret", Reply(body=RIDES.encode()))
    assert document_of("init", "new", "--from", f"{web.url}/out/{NAMES[1]}?key=secret")["files"] == OF_RIDES
    assert source_of("new")["pull"]["url"] == f"{web.url}/out"
    assert "secret" not in "".join(path.read_text() for path in Path("new").rglob("*.yaml"))


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("rides-20240309.csv", "slackwater pull rides --as-of 2024-03-09"),
        ("rides-2024-02-31.csv", "slackwater pull rides"),
        ("rides.csv", "slackwater pull rides"),
    ],
)
def test_the_pull_is_as_of_the_date_of_the_file(document_of, name, command):
    Path(name).write_text(RIDES)
    document = document_of("init", "new", "--from", name)
    assert command in document["next_commands"]
    fields = [item["field"] for item in document["decisions"] if item["field"].startswith("pull.")]
    assert fields == ["pull.url", *(["pull.files"] if name == "rides.csv" else [])]


def test_two_kinds_of_files_are_two_sources(document_of):
    pq.write_table(
        pa.table({"uuid": ["a", "b"], "at": pa.array([datetime(2024, 3, 9, 5, tzinfo=UTC)] * 2)}),
        "partner/trips-20240309.parquet",
    )
    document = document_of("init", "new", "--from", "partner")
    assert sorted({*document["files"]} - {*OF_RIDES}) == [
        "pipelines/daily_trips.yaml", "sources/trips.yaml", "tests/daily_trips.yaml",
    ]  # fmt: skip
    decide("new")
    assert document_of("pipeline", "validate", "--project", "new")["problems"] == []
    assert source_of("new", "trips")["pull"]["files"] == "trips-{date:%Y%m%d}.parquet"


@pytest.mark.parametrize(
    ("content", "open_fields"),
    [
        ("id,name\n1,a\n2,b\n", ["timestamp.field"]),
        ("id,at,name\n1,01/02/2024 10:00,a\n2,02/02/2024 10:00,b\n", ["timestamp.timezone", "fields.at"]),
    ],
)
def test_without_a_timestamp_there_is_no_test_and_validation_names_the_decision(document_of, content, open_fields):
    Path("rows.csv").write_text(content)
    document = document_of("init", "new", "--from", "rows.csv")
    assert not any(name.startswith("tests/") for name in document["files"])
    assert "slackwater test" not in document["next_commands"]
    required = [item["field"] for item in document["decisions"] if item["file"].startswith("sources/")]
    assert required[: len(open_fields)] == open_fields
    decide("new")
    problems = document_of("pipeline", "validate", "--project", "new", code=2)["problems"]
    assert {Path(problem["file"]).name for problem in problems} == {"rows.yaml"}
    assert {problem["place"].partition(".")[0] for problem in problems} == {"timestamp"}


@pytest.mark.parametrize(
    ("code", "samples", "message"),
    [
        (2, ["none.csv"], "error: none.csv: no such file"),
        (2, ["empty.csv"], "empty.csv: empty: send a sample with at least one row"),
        (2, ["header.csv"], "header.csv: no rows: send a sample with at least one row"),
        (2, ["picture.png"], "picture.png: neither text in UTF-8 nor Parquet nor an .xlsx workbook"),
        (2, ["nothing"], "--from: nothing: no file with one of the suffixes .csv, .json"),
        (2, ["ftp://partner.example/"], "ftp://partner.example/: only http and https URLs are read"),
        (1, ["http://127.0.0.1:9/out/"], "no connection is made to 127.0.0.1"),
        (2, ["partner", "rides.csv"], "2 kinds of files make a source 'rides': name only"),
    ],
)
def test_samples_that_cannot_be_used_are_refused_and_nothing_is_written(printed_by, folder, code, samples, message):
    Path("empty.csv").touch()
    Path("header.csv").write_text(HEADER)
    Path("rides.csv").write_text(RIDES)
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    Path("nothing").mkdir()
    options = [word for sample in samples for word in ("--from", sample)]
    assert message in printed_by("init", "new", *options, code=code).err
    assert not (folder / "new").exists()


def test_a_file_that_may_not_be_read_is_named(printed_by, monkeypatch):
    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    shown = printed_by("init", "new", "--from", f"partner/{NAMES[1]}", code=2).err
    assert f"partner/{NAMES[1]} cannot be read: Permission denied" in shown


def test_a_folder_in_use_is_refused_before_samples_are_read(printed_by):
    Path("new").mkdir()
    Path("new/file").write_text("mine")
    assert "new is not empty: name a new or an empty folder" in printed_by("init", "new", "--from", "x", code=2).err
    assert [path.name for path in Path("new").iterdir()] == ["file"]
