"""`slackwater step`: what needs no Spark. Running a step is tested in tests/spark/test_standalone.py."""

from __future__ import annotations

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder outside of any project, with one file of rows."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"v": [1, 2]}), "in.parquet")


def test_all_steps_are_listed_by_kind(printed_by):
    lines = printed_by("step", "list").out.splitlines()
    kinds = [line.split()[1] for line in lines[1:]]
    assert kinds == sorted(kinds, key=["extract", "transform", "load"].index)
    assert "clean_nan       transform  Fill missing values, or drop the rows that have them." in lines


def test_a_step_is_shown_with_its_inputs_parameters_and_objects_in_them(printed_by):
    shown = printed_by("step", "show", "clean_nan").out
    for part in ("clean_nan (transform): Fill", "Inputs: `rows`.", "order_by  list of string", "\nConstant\n"):
        assert part in shown


def test_the_document_of_a_step_has_the_json_schema_of_its_parameters(document_of):
    document = document_of("step", "show", "join")
    assert (document["kind"], document["inputs"]) == ("transform", "`left`, `right`, in this order.")
    jsonschema.validate({"keys": ["k"], "how": "left"}, document["schema"])
    with pytest.raises(jsonschema.ValidationError, match="'kesy' was unexpected"):
        jsonschema.validate({"keys": ["k"], "how": "left", "kesy": 1}, document["schema"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "jion"], "no step 'jion' (did you mean join?)"),
        (["run", "jion", "--input", "in.parquet"], "no step 'jion' (did you mean join?)"),
        (["run", "filter", "--input", "none.parquet"], "--input: none.parquet: "),
        (["run", "filter", "--input", "in.xml"], "--input: in.xml is none of the files .parquet, .csv, .ndjson"),
        (["run", "join", "--input", "in.parquet", "--input", "in.parquet"], "--input: name each of several inputs"),
        (["run", "join", "--input", "left=in.parquet", "--input", "left=in.parquet"], "--input: name each"),
        (["run", "join", "--input", "left=in.parquet"], "join: no input right (its inputs: left, right)"),
        (["run", "filter", "--input", "in.parquet", "--with", "where"], "--with: 'where' is not a parameter such as"),
        (["run", "filter", "--input", "in.parquet", "--with", "where=["], "--with: where: not readable as YAML"),
        (["run", "filter", "--with", "where=a", "--with", "where=b"], "--with: where is given twice"),
        (["run", "filter", "--input", "in.parquet"], "filter.with.where: Field required"),
        (["run", "filter", "--output", "out.txt"], "--output: out.txt is neither a .parquet nor a .csv file"),
        (["run", "write_csv", "--output", "out.csv"], "--output: write_csv itself writes the rows: remove the option"),
    ],
)
def test_a_wrong_argument_is_an_input_error_that_names_it(printed_by, document_of, arguments, message):
    assert message in printed_by("step", *arguments, code=2).err
    assert message in document_of("step", *arguments, code=2)["error"]["message"]
