"""Runs of pipelines that are not deployed: what is refused, and the state machine that exists for one run."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from slackwater import __version__
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.client.days.executions import Executions
from slackwater.client.days.undeployed import undeployed_run
from slackwater.errors import CloudError, DefinitionError, NotDeployed, RunFailed
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import CodeDigests, Project, load_definitions
from tests.fakes_runs import DictStore

pytestmark = pytest.mark.unit

DATE, PREFIX = "2013-03-08", "arn:aws:states:r:0:stateMachine:slackwater-pipeline-"
RATES = {"rates": {"iceberg": "finance.rates", "location": "s3://finance/rates"}}
DEFINED = load_definitions(Path("examples/nyc_flights"))
USED = {use.step for use in DEFINED.pipeline("daily_delays").steps.values()}
DEPLOYED = DEFINED.model_copy(update={"code": CodeDigests(job="1", steps=dict.fromkeys({*USED, "filter"}, "2"))})


def pipeline(name="long_flights", **changes):
    """A pipeline that is not deployed."""
    return Pipeline.model_validate(
        {
            "pipeline": name,
            "sources": ["flights"],
            "steps": {"long": {"step": "filter", "depends_on": ["flights"], "with": {"where": "distance > 2000"}}},
            "publish": {"step": "long", "key": ["date", "flight"]},
            **changes,
        }
    )


class States:
    """Step Functions with state machines by ARN, which knows a new one after `unknown` starts."""

    def __init__(self, *, unknown=0):
        self.unknown, self.calls, self.created, self.started = unknown, [], [], []

    def create_state_machine(self, **call):
        self.created.append(call)
        return {"stateMachineArn": self._called("create", f"{PREFIX.rpartition(':')[0]}:{call['name']}")}

    def start_execution(self, **call):
        self._called("start", call["stateMachineArn"])
        if self.unknown > 0:
            self.unknown -= 1
            raise ClientError({"Error": {"Code": "StateMachineDoesNotExist"}}, "StartExecution")
        self.started.append(call)
        return {"executionArn": f"execution of {call['stateMachineArn']}"}

    def stop_execution(self, *, executionArn, **_):  # noqa: N803
        self._called("stop", executionArn)

    def delete_state_machine(self, *, stateMachineArn):  # noqa: N803
        self._called("delete", stateMachineArn)

    def _called(self, action, arn):
        self.calls.append((action, arn))
        return arn


class World:
    """Runs on what is deployed, with fakes of Step Functions and S3."""

    def __init__(self, states=None, *, deployed=DEPLOYED, library=__version__, project=DEPLOYED):
        self.states, self.store, self.pauses = states or States(), DictStore(), []
        self.store.put("s3://assets/project.json", deployed.model_dump_json(by_alias=True).encode())
        names = (
            "freeze_inputs_function record_run_function application_id job_role_arn run_stage_uri warehouse_database "
            "files_prefix outbound_allow run_table log_prefix spark_submit_parameters"
        )
        self.deployment = SimpleNamespace(
            source_kms_keys="",
            library_version=library,
            project_uri="s3://assets/project.json",
            pipeline_machine_prefix=PREFIX,
            exchange_bucket="exchange",
            any_pipeline_role_arn="arn:role",
            **{name: f'the "{name}"' for name in names.split()},
        )
        self.project = project

    def start(self, definition):
        return undeployed_run(
            definition,
            DATE,
            {"date": DATE},
            project=self.project,
            deployment=self.deployment,
            store=self.store,
            executions=Executions(state_machines=StateMachines(self.states), correlation_id="c"),
            sleep=self.pauses.append,
        )

    @property
    def actions(self):
        return [action for action, _ in self.states.calls]


OTHERWISE = DEPLOYED.model_copy(update={"sources": {"flights": DEPLOYED.source("weather")}})


@pytest.mark.parametrize(
    ("definition", "world", "message"),
    [
        (pipeline(), {"library": "0.0.1"}, r"^version 0\.0\.1 of slackwater is deployed, and this is "),
        (pipeline(), {"project": OTHERWISE}, "^the source flights is not deployed as it is defined: "),
        (
            pipeline(tables={"other": {"table": "monthly"}}),
            {},
            "^the pipeline monthly, whose table this one reads, is not deployed$",
        ),
        (
            pipeline(tables=RATES),
            {},
            r"^tables\.rates: no deployed pipeline reads finance\.rates in s3://finance/rates, .*: deploy a pipeline",
        ),
        (
            pipeline(steps={"long": {"step": "acme", "depends_on": ["flights"]}}),
            {},
            r"^steps\.long\.step: the step acme is not deployed: add its package to the setting step_packages, and ",
        ),
        (
            pipeline(load={"sent": {"step": "acme", "depends_on": ["long"]}}),
            {},
            r"^load\.sent\.step: the step acme is not deployed: ",
        ),
    ],
)
def test_a_pipeline_that_needs_more_than_what_is_deployed_is_refused(definition, world, message):
    world = World(**world)
    with pytest.raises(NotDeployed, match=message), world.start(definition):
        pass
    assert world.actions == []


@pytest.mark.parametrize(("location", "accepted"), [("s3://finance/rates", True), ("s3://finance/old", False)])
def test_an_iceberg_table_can_be_read_if_a_deployed_pipeline_reads_it_at_the_same_location(location, accepted):
    deployed = DEPLOYED.model_copy(update={"pipelines": {"rated": pipeline("rated", tables=RATES)}})
    world = World(deployed=deployed)
    tables = {"fees": {"iceberg": "finance.rates", "location": location}}
    with nullcontext() if accepted else pytest.raises(NotDeployed), world.start(pipeline(tables=tables)):
        pass
    assert bool(world.states.started) is accepted


def test_a_run_has_a_state_machine_of_its_own_with_the_deployed_values_and_a_project_with_the_pipeline():
    world, definition = World(), pipeline()
    with world.start(definition) as execution:
        (machine,) = world.states.created
        (call,) = world.states.started
    assert execution == f"execution of {call['stateMachineArn']}"
    assert call["stateMachineArn"].startswith(f"{PREFIX}long_flights-")
    assert json.loads(call["input"]) == {"date": DATE, "correlation_id": "c"}
    assert machine["roleArn"] == "arn:role"
    assert "${" not in machine["definition"]
    assert 'the "spark_submit_parameters"' in str(json.loads(machine["definition"]))
    (uri,) = [uri for uri in world.store.objects if uri.startswith("s3://exchange/projects/")]
    assert json.dumps(uri)[1:-1] in machine["definition"]
    project = Project.model_validate_json(world.store.get(uri))
    assert project == DEPLOYED.model_copy(update={"pipelines": {**DEPLOYED.pipelines, "long_flights": definition}})


@pytest.mark.parametrize("error", [None, RunFailed("no such column"), KeyboardInterrupt()])
def test_the_execution_is_stopped_and_the_machine_deleted_after_success_failure_and_interruption(error):
    world = World()

    with pytest.raises(type(error)) if error else nullcontext(), world.start(pipeline()):
        assert world.actions == ["create", "start"]
        if error:
            raise error
    machine = world.states.calls[0][1]
    assert world.states.calls[2:] == [("stop", f"execution of {machine}"), ("delete", machine)]


@pytest.mark.parametrize("name", ["a", "p" * 63])
def test_names_of_machines_have_at_most_80_characters_and_differ(name):
    world = World()
    for _ in range(2):
        with world.start(pipeline(name)):
            pass
    first, second = (call["name"] for call in world.states.created)
    assert first != second
    assert max(len(first), len(second)) <= 80
    # The functions have permissions on machines whose names begin so.
    assert first.startswith("slackwater-pipeline-" + name[:20])


@pytest.mark.parametrize(("unknown", "pauses"), [(0, []), (1, [1]), (4, [1, 2, 4, 8])])
def test_a_start_is_repeated_until_step_functions_knows_the_new_machine(unknown, pauses):
    world = World(States(unknown=unknown))
    with world.start(pipeline()):
        pass
    assert (world.pauses, len(world.states.started)) == (pauses, 1)


def test_a_machine_that_stays_unknown_is_deleted():
    world = World(States(unknown=5))
    with pytest.raises(NotDeployed, match="there is no state machine slackwater-pipeline-long_flights-"):
        world.start(pipeline()).__enter__()
    assert (world.pauses, world.actions) == ([1, 2, 4, 8], ["create", *["start"] * 5, "delete"])


def test_a_start_that_fails_otherwise_is_not_repeated_and_leaves_no_machine():
    world = World()

    def refuse(**_):
        raise ClientError({"Error": {"Code": "InvalidName"}}, "StartExecution")

    world.states.start_execution = refuse
    with pytest.raises(CloudError, match="InvalidName"):
        world.start(pipeline()).__enter__()
    assert (world.pauses, world.actions) == ([], ["create", "delete"])


def test_a_deployed_pipeline_with_the_same_definition_runs_in_its_own_machine_which_stays():
    world = World()
    same = DEPLOYED.pipeline("daily_delays").model_copy(update={"description": "Only this differs."})
    with world.start(same) as execution:
        pass
    machine = f"{PREFIX}daily_delays"
    assert execution == f"execution of {machine}"
    assert world.states.calls == [("start", machine), ("stop", execution)]


def test_another_definition_of_a_deployed_pipeline_is_refused():
    world = World()
    message = "^the pipeline daily_delays is deployed with another definition, whose days .*: give the pipeline in the"
    with pytest.raises(DefinitionError, match=message), world.start(pipeline("daily_delays")):
        pass
    assert world.actions == []
