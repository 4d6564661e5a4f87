import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import stages
from slackwater.pipeline.table_inputs import TableInput
from slackwater.pipeline.when import MAX_WAIT, When
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
    """Return the names of the states in the order of a run that publishes and keeps no stage."""
    name, names = "Decide what to do", []
    while name:
        names.append(name)
        state = machine["States"][name]
        name = state["Choices"][0]["Next"] if name == "Decide what to do" else state.get("Next", state.get("Default"))
    return names


DIAMOND = {"one_x": ["a"], "left_x": ["one_x"], "right_x": ["one_x"], "alone_x": ["b"]}


def test_stages_that_do_not_read_each_other_run_in_parallel():
    machine = compile_machine(pipeline({**DIAMOND, "end": ["left_x", "right_x", "alone_x"]}, "end"), FRAME)
    first, second = "Run 2 stages in parallel (1)", "Run 2 stages in parallel (2)"
    assert states_of_a_run(machine)[1:] == [first, second, "Run end", "Record the publication"]
    for name, expected in ((first, [("one_x", 0), ("alone_x", 1)]), (second, [("left_x", 2), ("right_x", 3)])):
        state = machine["States"][name]
        assert state["Catch"][0]["Next"] == "Record the failure"
        for branch, (stage, position) in zip(state["Branches"], expected, strict=True):
            choice = branch["States"][branch["StartAt"]]
            assert choice["Choices"] == [{"Condition": f"{{% {position} in $finished %}}", "Next": f"Keep {stage}"}]
            assert choice["Default"] == f"Run {stage}"
            run = branch["States"][f"Run {stage}"]
            assert run["End"] is True
            assert run["Retry"]
            assert not {"Next", "Catch"} & set(run)


def test_every_placeholder_of_the_frame_is_filled():
    assert not re.search(r"<(pipeline|stage|index)>", json.dumps(compiled()))


def test_no_two_jobs_of_a_run_share_a_client_token():
    states = compiled()["States"].values()
    tokens = [state["Arguments"]["ClientToken"] for state in states if "ClientToken" in state.get("Arguments", {})]
    assert len(tokens) == len(set(tokens)) == 2


def test_every_job_gets_the_whole_run_as_one_argument():
    for stage in ("flights_with_weather", "delays_by_carrier"):
        arguments = compiled()["States"][f"Run {stage}"]["Arguments"]["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
        assert arguments[: arguments.index("{% '--restore=' & $restore %}")] == [
            *("--project", "${ProjectUri}", "--run", "{% $string($run) %}", "--stage", stage),
            *("--catalog-table", "warehouse.${WarehouseDatabase}.daily_delays"),
        ]
        files = arguments.index("--files")
        assert arguments[files:] == [
            *("--files", "${FilesPrefix}", "--outbound-allow=${OutboundAllow}"),
            "{% '--source-kms-keys=' & $source_keys %}",
        ]


@pytest.mark.parametrize("name", ["publication", "failure"])
def test_no_name_of_a_stage_replaces_a_state_of_the_frame(name):
    machine = compile_machine(pipeline({name: ["a"]}, name), FRAME)
    assert len(machine["States"]) == len(FRAME["States"]) - 3  # without `Is <stage> finished?`, and what waits
    assert machine["States"][f"Run {name}"]["Next"] == "Record the publication"


def waiting(**when):
    return pipeline({"one": ["a"]}, "one").model_copy(update={"when": When.model_validate(when)})


def test_a_pipeline_that_waits_for_nothing_has_no_states_for_it():
    machine = compile_machine(pipeline({"one": ["a"]}, "one"), FRAME)
    assert machine["StartAt"] == "Freeze inputs"
    assert not {"Decide whether to wait", "Wait for the inputs"} & machine["States"].keys()
    assert "missing" not in json.dumps(machine)


def test_a_scheduled_run_waits_before_its_inputs_are_frozen():
    machine = compile_machine(waiting(inputs={"a": "complete"}), FRAME)
    states = machine["States"]
    first, wait = states[machine["StartAt"]], states["Wait for the inputs"]
    assert first["Choices"][0]["Next"] == "Wait for the inputs"
    assert first["Default"] == wait["Next"] == "Freeze inputs"
    assert wait["Arguments"]["Payload"]["pipeline"] == "p"
    [again] = wait["Catch"]
    assert (again["ErrorEquals"], again["Next"]) == (["States.Timeout"], "Wait for the inputs")
    # Another error would be retried, or end the execution; a retry of a time-out would not evaluate anything.
    assert all("States.Timeout" not in retry["ErrorEquals"] for retry in wait["Retry"])
    # Every way into the state that reads the variable has set it.
    assert states["Freeze inputs"]["Arguments"]["Payload"]["missing"] == "{% $missing %}"
    assert "missing" in first["Assign"]
    assert "missing" in first["Choices"][0]["Assign"]
    assert "missing" in wait["Assign"]


def test_the_history_of_the_longest_wait_has_room():
    # A turn enters the state, schedules, starts and submits the task, which times out, and exits the state. A person
    # may let a day wait that has just begun.
    turns = (MAX_WAIT + timedelta(hours=25)) / timedelta(seconds=900)
    assert turns * 8 + 5_000 < 25_000


def test_a_pipeline_whose_table_waits_has_the_states():
    table = TableInput(table="q", missing="wait")
    machine = compile_machine(pipeline({"one": ["a"]}, "one").model_copy(update={"tables": {"t": table}}), FRAME)
    assert "Wait for the inputs" in machine["States"]
