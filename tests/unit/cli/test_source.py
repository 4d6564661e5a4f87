"""`slackwater source`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml

from examples.nyc_flights.feed import flights_files, make_feed
from slackwater.cli.main import run
from slackwater.project.project import load_source
from tests.fakes_web import Reply

pytestmark = pytest.mark.unit

FLIGHTS = Path("examples/nyc_flights/sources/flights.yaml")


def test_the_columns_of_a_valid_definition_are_printed_or_one_document(printed_by, document_of):
    shown = printed_by("source", "validate", str(FLIGHTS)).out
    assert "flights: valid, 19 columns" in shown
    assert "carrier, required" in shown
    (source,) = document_of("source", "validate", str(FLIGHTS))["sources"]
    assert source["source"] == "flights"
    assert source["columns"]["dep_delay"] == "double"
    assert source["pull"]["format"]["type"] == "csv"


def test_without_a_file_the_whole_project_is_checked(printed_by):
    shown = printed_by("source", "validate", "--project", "examples/nyc_flights").out
    assert "flights: valid" in shown
    assert "weather: valid, 15 columns" in shown


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("source: other\ntimestamp: {field: at}\nfields: {at: timestamp}\npush: {}\n", "name the file other.yaml"),
        ("source: feed\ntimestamp: {field: at}\nfields: {at: text}\npush: {}\n", "fields.at"),
        ("- feed\n", "a mapping of keys is expected"),
        (None, "no such file"),
    ],
)
def test_an_invalid_definition_is_an_input_error_that_names_file_and_field(tmp_path, printed_by, content, says):
    file = tmp_path / "feed.yaml"
    if content:
        file.write_text(content)
    shown = printed_by("source", "validate", str(file), code=2).err
    assert says in shown
    assert "feed.yaml" in shown


@pytest.mark.parametrize("group", ["source", "pipeline"])
def test_the_schema_command_prints_json(printed_by, group):
    assert json.loads(printed_by(group, "schema").out)["title"] == group.capitalize()


SAMPLE = "id,zip,at\n1,00501,2013-03-08T12:00:00Z\n2,10001,2013-03-08T12:00:00+01:00\n"


@pytest.fixture
def sample(tmp_path, monkeypatch) -> str:
    """The name of a CSV file in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("orders-2013-03-08.csv").write_text(SAMPLE)
    return "orders-2013-03-08.csv"


def test_infer_prints_a_definition_that_is_valid(sample, printed_by):
    shown = printed_by("source", "infer", sample)
    Path("orders.yaml").write_text(shown.out)
    assert load_source(Path("orders.yaml")).columns == {"id": "int64", "zip": "string", "at": "timestamp"}
    assert "zip: string  # numbers with leading zeros, such as '00501'" in shown.out
    assert shown.err == ""


def test_infer_writes_a_new_file_with_the_name_of_the_source(sample, capsys, printed_by):
    output = Path("sources/shop_orders.yaml")  # in a folder that does not exist yet
    assert printed_by("source", "infer", sample, "--output", str(output)).out == f"{output}: 3 fields from 2 rows\n"
    assert load_source(output).source == "shop_orders"
    output.write_text("mine")
    assert run(["source", "infer", sample, "--output", str(output)]) == 2
    assert f"{output} exists: remove it, or name another file" in capsys.readouterr().err
    assert output.read_text() == "mine"


def test_infer_names_what_is_to_decide_and_validate_refuses_it(sample, capsys, printed_by):
    Path(sample).write_text("id,at\n1,01/02/2013 10:00\n2,03/04/2013 10:00\n3\n")
    notes = printed_by("source", "infer", sample, "--output", "orders.yaml").err.splitlines()
    assert notes == [
        "the receiver rejects 1 row of the sample",
        "decide timestamp.timezone: there are timestamps without an offset from UTC",
        "decide fields.at: 2 readings fit all values",
    ]
    assert run(["source", "validate", "orders.yaml"]) == 2
    assert "timestamp.timezone: no such timezone: 'DECIDE the timezone'" in capsys.readouterr().err


def test_infer_with_json_prints_one_document(sample, document_of):
    document = document_of("source", "infer", sample, "--name", "shop")
    assert yaml.safe_load(document.pop("definition"))["source"] == "shop"
    assert document.pop("fields") == {"id": "int64", "zip": "string", "at": "timestamp"}
    expected = {"source": "shop", "rows": 2, "is_complete": True, "rejected": 0, "undecided": {}, "output": None}
    assert document == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.csv"], "nowhere.csv: no such file"),
        (["s3://bucket/orders.csv"], "only http and https URLs are read: download the file"),
        (["{sample}", "--name", "My-Orders"], "--name: 'My-Orders' is no name of a source"),
        (["{sample}", "--output", "my-orders.yaml"], "--output: 'my-orders' is no name of a source"),
        (
            ["{sample}", "--output", "orders.json"],
            "--output: orders.json: the file of a source has its name: orders.yaml",
        ),
        (["{sample}", "--name", "a", "--output", "b.yaml"], "the file of a source has its name: a.yaml"),
        (["{sample}", "--output", "{sample}/orders.yaml"], "--output: orders-2013-03-08.csv/orders.yaml: File exists"),
    ],
)
def test_infer_refuses_what_it_cannot_read_or_write(sample, capsys, arguments, says):
    assert run(["source", "infer", *(argument.format(sample=sample) for argument in arguments)]) == 2
    assert says in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == [sample]


def test_infer_refuses_urls_with_private_addresses(sample, web, printed_by):
    assert "no connection is made to 127.0.0.1" in printed_by("source", "infer", f"{web.url}/orders.csv", code=1).err
    assert web.requests == []


def test_infer_reads_the_beginning_of_a_url(sample, web, printed_by, monkeypatch):
    monkeypatch.setenv("SLACKWATER_SET", f"log_level=DEBUG outbound_allow=10.0.0.1,{web.entry}")
    web.on("/out/my%20orders-2013-03-08.csv.gz?key=secret", Reply(body=gzip.compress(SAMPLE.encode())))
    shown = printed_by("source", "infer", f"{web.url}/out/my%20orders-2013-03-08.csv.gz?key=secret").out
    pull = yaml.safe_load(shown)["pull"]
    assert (pull["url"], pull["files"]) == (f"{web.url}/out", "my orders-{date}.csv.gz")
    assert "secret" not in shown


# What a person knows and a sample cannot say: that delays are measured in fractions, and which fields are required.
HAND_WRITTEN_DOUBLES = {"dep_delay", "arr_delay", "air_time", "distance"}


def test_the_definitions_of_the_example_are_inferred_from_its_data(tmp_path, capsys):
    feed = make_feed(tmp_path, ["2013-03-08", "2013-03-09"])
    name, content = next(iter(flights_files(feed.dates[0]).items()))
    assert (feed.flights / name).read_text() == content
    for sample, source in ((feed.flights / name, "flights"), (feed.weather, "weather")):
        assert run(["source", "infer", str(sample), "--output", str(tmp_path / f"{source}.yaml")]) == 0
        inferred = load_source(tmp_path / f"{source}.yaml")
        expected = load_source(FLIGHTS.with_name(f"{source}.yaml"))
        differing = {field for field, data_type in expected.columns.items() if inferred.columns[field] != data_type}
        assert differing == (HAND_WRITTEN_DOUBLES if source == "flights" else set())
        assert list(inferred.columns) == list(expected.columns)
        assert inferred.timestamp == expected.timestamp
    assert load_source(tmp_path / "flights.yaml").null_values == ("", "NA")
    assert load_source(tmp_path / "flights.yaml").require_pull().files == "flights-{date}*.csv"
