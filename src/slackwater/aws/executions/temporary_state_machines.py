"""State machines of pipelines that are not deployed: each exists for one execution."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slackwater.aws.deployment import Deployment
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.errors import NotDeployed

# Seconds until Step Functions knows a new machine everywhere: "This operation is eventually consistent"
# (`CreateStateMachine` in the API reference).
_PAUSES = (1, 2, 4, 8)


def definition_of(machine: dict[str, Any], deployment: Deployment, **values: str) -> str:
    """Return a pipeline's state machine as JSON, with its placeholders filled; `values` replace those of `deployment`.

    Its jobs have the workers of the settings, and remove no versions.
    """
    known = {
        "FreezeInputsFunction": deployment.freeze_inputs_function,
        "RecordRunFunction": deployment.record_run_function,
        "ApplicationId": deployment.application_id,
        "JobRoleArn": deployment.job_role_arn,
        "RunStageUri": deployment.run_stage_uri,
        "ProjectUri": deployment.project_uri,
        # Versions of such pipelines are not compared, so their code need not be found again.
        "ArchiveUri": "",
        "WarehouseDatabase": deployment.warehouse_database,
        "FilesPrefix": deployment.files_prefix,
        "OutboundAllow": deployment.outbound_allow,
        "SourceKmsKeys": deployment.source_kms_keys,
        "RunTable": deployment.run_table,
        "VersionDays": "0",
        "LogUri": deployment.log_prefix,
        # Workers of the pipeline's own `spark` would need the settings of the deployment.
        "SparkSubmitParameters": deployment.spark_submit_parameters,
    }
    definition = json.dumps(machine)
    for name, value in {**known, **values}.items():
        definition = definition.replace(f"${{{name}}}", json.dumps(value)[1:-1])
    return definition


@contextmanager
def temporary_machine(state_machines: StateMachines, name: str, *, definition: str, role: str) -> Iterator[str]:
    """Create a state machine with the role of this ARN, and yield its ARN; delete it at the end of the block."""
    machine = state_machines.create(name, definition=definition, role=role)
    try:
        yield machine
    finally:
        state_machines.delete(machine)


@contextmanager
def started(
    state_machines: StateMachines, start: Callable[[], str], *, sleep: Callable[[float], None]
) -> Iterator[str]:
    """Yield the ARN of the execution that `start` returns, and stop it at the end of the block if it still runs.

    `start` is called again while Step Functions does not know its machine yet. Raises `NotDeployed` after 15 seconds.
    """
    for pause in (*_PAUSES, 0):
        try:
            execution = start()
            break
        except NotDeployed:
            if not pause:
                raise
            sleep(pause)
    try:
        yield execution
    finally:
        state_machines.stop(execution, cause="the command that started it has ended")
