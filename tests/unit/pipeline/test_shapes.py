"""Properties of compiled pipelines of every shape, and the limits that the largest ones keep."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import pipeline_order, stages
from slackwater.pipeline.retries import SPARK_JOB, Machine
from slackwater.runs.freeze import FreezeAction, Frozen
from slackwater.runs.record import Publication
from slackwater.validation.structure import check_structure
from slackwater.validation.yaml_file import YamlFile
from tests.execution_events import ENDS, HISTORY_LIMIT, Waiting, most_events, targets
from tests.fakes_runs import LONGEST_RUN
from tests.machines import evaluated, states_of, tasks_of
from tests.pipeline_shapes import LONGEST, SHAPES, build, chains, pipelines

pytestmark = pytest.mark.unit

FRAME = json.loads(Path("step_functions/pipeline.asl.json").read_text())
MOST_STEPS = 200
PAYLOAD_LIMIT = 8192
"""Bytes that we allow in what passes through a state."""
NAME_LIMIT = 80
"""Characters that Step Functions allows in a state's name."""
PLACEHOLDERS = {"SparkSubmitParameters": "x" * 2000}
"""Values of placeholders; every other one is a URI or an ARN (`tests/infra` compares them with a deployment's)."""
PUBLICATION = Publication(
    table=f"warehouse.{'w' * LONGEST}.{'p' * LONGEST}",
    snapshot_id="9" * 19,
    rows=10**15,
    replaced=10**15,
    seconds=1e5,
    content="0" * 64,
)


def compiled(pipeline: Pipeline) -> Machine:
    return compile_machine(pipeline, FRAME)


@cache
def largest(shape: str) -> Machine:
    """Return the machine of a pipeline of 200 steps with the longest names, each a stage.

    If the shape needs a last step, the pipeline has 201.
    """
    size = MOST_STEPS
    return compiled(build(SHAPES[shape](size), exchanges=range(size), name="p" * LONGEST, padding=LONGEST))


def jobs_of_a_run(machine: Machine, finished: Collection[int] = ()) -> Iterator[set[str]]:
    """Yield the stages whose jobs a run starts, in order; those that run in parallel together.

    `finished` has the positions of the stages that it keeps.
    """

    def jobs(level: Machine, name: str | None) -> Iterator[set[str]]:
        while name and name != "Record the publication":
            state = level["States"][name]
            if state["Type"] == "Parallel":
                yield set().union(*(started for part in state["Branches"] for started in jobs(part, part["StartAt"])))
            elif state["Type"] == "Task":
                yield {stage_of(state)}
            choices = state.get("Choices", [])
            taken = [one for one in choices if evaluated(one["Condition"], {}, {"finished": list(finished)})]
            name = taken[0]["Next"] if taken else state.get("Default") or state.get("Next")

    yield from jobs(machine, machine["States"]["Decide what to do"]["Choices"][0]["Next"])


def stage_of(job: Machine) -> str:
    arguments = job["Arguments"]["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
    return str(arguments[arguments.index("--stage") + 1])


@given(pipelines())
def test_each_step_is_in_one_stage_which_ends_only_where_it_must(pipeline):
    steps, of = pipeline.steps, {name: stage for stage in stages(pipeline) for name in stage.steps}
    assert sorted(name for stage in stages(pipeline) for name in stage.steps) == sorted(steps)
    loaded = {name for use in pipeline.load.values() for name in use.depends_on}
    for name, use in steps.items():
        readers = {of[reader].name for reader in steps if name in steps[reader].depends_on}
        must_end = use.exchange or len(readers) > 1 or name == pipeline.publish.step or name in loaded
        assert (of[name].name == name) is must_end
        assert must_end or readers == {of[name].name}


@given(pipelines())
def test_every_stage_runs_once_after_all_that_it_reads_and_as_early_as_it_can(pipeline):
    reads = {stage.name: set(stage.reads_stages) for stage in stages(pipeline)}
    done: set[str] = set()
    *parallel, last = jobs_of_a_run(compiled(pipeline))
    for started in parallel:
        ready = {name for name in reads if name not in done and reads[name] <= done} - last
        assert started == ready
        done |= started
    assert last == {pipeline.publish.step} == reads.keys() - done


@given(pipelines(), st.data())
def test_a_run_starts_no_job_for_a_stage_that_it_keeps(pipeline, data):
    *others, last = [stage.name for stage in stages(pipeline)]
    finished = data.draw(st.sets(st.sampled_from(range(len(others))))) if others else set()
    started = [name for names in jobs_of_a_run(compiled(pipeline), finished) for name in names]
    assert sorted(started) == sorted([last, *(name for n, name in enumerate(others) if n not in finished)])


@given(pipelines())
def test_a_state_goes_only_to_states_of_its_level_and_every_state_is_reached(pipeline):
    machine = compiled(pipeline)
    names = [name for name, _, _ in states_of(machine)]
    assert len(names) == len(set(names)), "names are unique in the whole machine"
    branches = [branch for _, state, _ in states_of(machine) for branch in state.get("Branches", ())]
    for level in (machine, *branches):
        reached = {level["StartAt"]}.union(*(targets(state) for state in level["States"].values()))
        assert reached == set(level["States"])


@given(pipelines())
def test_the_file_and_the_definition_compile_to_the_same_bytes(pipeline):
    content = pipeline.model_dump(mode="json", by_alias=True)
    file = YamlFile(Path("p.yaml"), yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False).encode())
    read = check_structure(file, Pipeline).definition
    assert not file.problems
    assert json.dumps(compiled(read)) == json.dumps(compiled(pipeline))


def test_every_process_compiles_the_same_bytes():
    """Sets and dictionaries of names have another order where Python hashes strings with another seed."""
    program = (
        "import json; from pathlib import Path\n"
        "from slackwater.pipeline.compile import compile_machine; from tests.pipeline_shapes import SHAPES, build\n"
        f"frame = json.loads(Path({str(Path('step_functions/pipeline.asl.json').resolve())!r}).read_text())\n"
        "for shape in SHAPES.values():\n"
        "    pipeline = build(shape(23), exchanges=range(0, 23, 2), two_sinks=True)\n"
        "    print(json.dumps(compile_machine(pipeline, frame)))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == len(SHAPES)


@given(chains())
def test_a_chain_of_pipelines_is_ordered_and_each_one_starts_only_its_own_stages(project):
    order = pipeline_order(project)
    assert sorted(order) == sorted(project)
    for name, pipeline in project.items():
        assert all(order.index(item.table) < order.index(name) for item in pipeline.tables.values())
        machine = compiled(pipeline)
        jobs = [task for _, task in tasks_of(machine) if task["Resource"] == SPARK_JOB]
        assert {job["Arguments"]["Tags"]["slackwater:pipeline"] for job in jobs} == {name}
        assert {stage_of(job) for job in jobs} == {stage.name for stage in stages(pipeline)}
        assert machine["States"]["Freeze inputs"]["Arguments"]["Payload"]["pipeline"] == name


def test_the_events_of_a_parallel_state_are_those_of_all_branches_with_all_retries():
    job = {"Type": "Task", "Resource": SPARK_JOB, "Retry": [{"MaxAttempts": 2}], "End": True}
    kept = {"Ask": {"Type": "Choice", "Default": "Keep"}, "Keep": {"Type": "Succeed"}}
    branches = [{"StartAt": "Run", "States": {"Run": job}}, {"StartAt": "Ask", "States": kept}]
    machine = {"StartAt": "Both", "States": {"Both": {"Type": "Parallel", "Branches": branches, "End": True}}}
    # ParallelState: Entered, Started, Succeeded, Exited. TaskState: Entered, Exited; and 3 times TaskScheduled,
    # TaskStarted, TaskSubmitted, TaskFailed. ChoiceState: Entered, Exited. SucceedState: Entered, Exited.
    assert most_events(machine) == 4 + (2 + 3 * 4) + 2 + 2


@pytest.mark.parametrize("shape", SHAPES)
class TestLargest:
    """A pipeline of 200 steps, each of which is a stage, with the longest names."""

    def test_an_execution_fits_into_the_history_with_all_retries(self, shape):
        machine = largest(shape)
        # The day may run a second time, and may wait for other executions before both.
        once = Waiting(machine).events + most_events(machine)
        assert ENDS + 2 * once < HISTORY_LIMIT

    def test_names_of_states_are_readable_and_short_enough(self, shape):
        for name, _, _ in states_of(largest(shape)):
            assert re.fullmatch(r"[A-Z][a-z]+( [a-z0-9_]+)+( \(\d+\)|\?)?", name)
            assert len(name) <= NAME_LIMIT

    def test_payloads_are_small(self, shape):
        definition = json.dumps(largest(shape))
        machine = json.loads(re.sub(r"\$\{(\w+)\}", lambda name: PLACEHOLDERS.get(name[1], "x" * 128), definition))
        frozen = Frozen(action=FreezeAction.RUN, run=LONGEST_RUN, finished=tuple(range(MOST_STEPS)))
        payloads = [frozen.model_dump(mode="json")]
        run, entered = payloads[0]["run"], {"date": "2013-03-10", "correlation_id": "c" * 128, "force": True}
        states = {
            "input": entered,
            "context": {"Execution": {"Id": "x" * 256, "Name": "n" * 80, "Input": entered}},
            "result": {"Payload": PUBLICATION.model_dump(mode="json")},
        }
        variables = {"run": run, "retried": True, "error": {"Error": "States.TaskFailed"}}
        for _, task in tasks_of(machine):
            payloads += [evaluated(task.get(key, {}), states, variables) for key in ("Arguments", "Output")]
        # The cause of a failed job is its description, with all of its arguments.
        job = next(payload for payload in payloads if "JobDriver" in payload)
        variables["error"]["Cause"] = json.dumps({**job, "State": "FAILED", "StateDetails": "x" * 1024})
        payloads.append(evaluated(machine["States"]["Record the failure"]["Arguments"], states, variables))
        assert len(payloads) > 2 * MOST_STEPS
        assert max(len(json.dumps(payload).encode()) for payload in payloads) < PAYLOAD_LIMIT
