import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import stages
from tests.two_stages import two_stage_project

pytestmark = pytest.mark.unit

FRAME = json.loads(Path("step_functions/pipeline.asl.json").read_text())


def pipeline(steps, publish):
    return Pipeline.model_validate(
        {
            "pipeline": "p",
            "sources": ["a", "b"],
            "steps": {
                name: {"step": "sql", "depends_on": reads, "exchange": name.isupper() or name.endswith("_x")}
                for name, reads in steps.items()
            },
            "publish": {"step": publish, "key": ["date"]},
        }
    )


@pytest.mark.parametrize(
    ("steps", "publish", "expected"),
    [
        ({"one": ["a"]}, "one", [("one",)]),
        ({"one": ["a"], "two": ["one"]}, "two", [("one", "two")]),
        ({"one_x": ["a"], "two": ["one_x"]}, "two", [("one_x",), ("two",)]),
        ({"one": ["a"], "two": ["b"], "three": ["one", "two"]}, "three", [("one", "two", "three")]),
        (
            {"one": ["a"], "left": ["one"], "right": ["one"], "end": ["left", "right"]},
            "end",
            [("one", "left", "right", "end")],
        ),
        # Both jobs would compute `one`, so it is stored.
        (
            {"one": ["a"], "left_x": ["one"], "right": ["one"], "end": ["left_x", "right"]},
            "end",
            [("one",), ("left_x",), ("right", "end")],
        ),
        (
            {"left_x": ["a"], "right_x": ["b"], "end": ["left_x", "right_x"]},
            "end",
            [("left_x",), ("right_x",), ("end",)],
        ),
        ({"one": ["a", "b"], "two": ["one", "a"]}, "two", [("one", "two")]),
    ],
)
def test_steps_are_joined_into_stages_where_no_exchange_is_needed(steps, publish, expected):
    assert [stage.steps for stage in stages(pipeline(steps, publish))] == expected


def test_a_stage_reads_the_sources_and_stages_of_all_its_steps():
    (first, second) = stages(pipeline({"one_x": ["a"], "two": ["one_x", "b"]}, "two"))
    assert (first.reads_sources, first.reads_stages) == (("a",), ())
    assert (second.reads_sources, second.reads_stages) == (("b",), ("one_x",))


def compiled():
    return compile_machine(two_stage_project().pipeline("daily_delays"), FRAME)


def states_of_a_run(machine):
    """Return the names of the states in the order of a run that publishes."""
    name, names = "Run flights_with_weather", []
    while name:
        names.append(name)
        name = machine["States"][name].get("Next")
    return names


def test_the_stages_run_one_after_the_other_and_then_the_publication_is_recorded():
    assert states_of_a_run(compiled()) == [
        "Run flights_with_weather",
        "Record flights_with_weather",
        "Run delays_by_carrier",
        "Record delays_by_carrier",
        "Record the publication",
    ]


def test_every_name_that_a_state_goes_to_exists_and_every_state_is_reached():
    machine = compiled()
    targets = set(re.findall(r'"(?:Next|Default|StartAt)": "([^"]+)"', json.dumps(machine)))
    assert targets | {"Freeze inputs"} == set(machine["States"])


def test_every_placeholder_of_the_frame_is_filled():
    assert not re.search(r"<(pipeline|stage|index)>", json.dumps(compiled()))


def test_a_job_gets_the_manifests_of_the_stages_that_it_reads():
    def upstream(state):
        arguments = compiled()["States"][state]["Arguments"]["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
        return [value for flag, value in pairwise(arguments) if flag == "--upstream"]

    assert upstream("Run flights_with_weather") == []
    assert upstream("Run delays_by_carrier") == [
        "{% 'flights_with_weather=' & $references.flights_with_weather.manifest %}"
    ]


def test_no_two_jobs_of_a_run_share_a_client_token():
    states = compiled()["States"].values()
    tokens = [state["Arguments"]["ClientToken"] for state in states if "ClientToken" in state.get("Arguments", {})]
    assert len(tokens) == len(set(tokens)) == 2


def test_every_job_gets_the_whole_run_as_one_argument():
    for stage in ("flights_with_weather", "delays_by_carrier"):
        arguments = compiled()["States"][f"Run {stage}"]["Arguments"]["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
        assert arguments[: arguments.index("--fewer-rows")] == [
            *("--project", "${ProjectUri}", "--run", "{% $string($run) %}", "--stage", stage),
            *("--catalog-table", "warehouse.${WarehouseDatabase}.daily_delays"),
        ]
        files = arguments.index("--files")
        assert arguments[files : files + 3] == ["--files", "${FilesPrefix}", "--outbound-allow=${OutboundAllow}"]


def test_a_pipeline_without_an_exchange_is_one_spark_job():
    states = compile_machine(pipeline({"one": ["a"], "two": ["one"]}, "two"), FRAME)["States"]
    jobs = [name for name, state in states.items() if "emr-serverless" in state.get("Resource", "")]
    assert jobs == ["Run two"]


@pytest.mark.parametrize("name", ["publication", "failure"])
def test_no_name_of_a_stage_replaces_a_state_of_the_frame(name):
    machine = compile_machine(pipeline({name: ["a"]}, name), FRAME)
    assert len(machine["States"]) == len(FRAME["States"])
    assert machine["States"][f"Record {name}"]["Next"] == "Record the publication"


def test_the_longest_names_fit_into_a_state_name():
    long = "s" * 63
    machine = compile_machine(pipeline({long: ["a"]}, long), FRAME)
    assert max(map(len, machine["States"])) <= 80
