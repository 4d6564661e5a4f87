"""The CDK app. From the root of the repository: `cdk synth`, or `cdk synth --context slackwater:project=DIR`.

Without a clone, `slackwater deploy` runs it in the project's folder.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import App, DefaultStackSynthesizer, Environment, Stack, Tags

from infra.artefacts import Artefacts, build_artefacts, optional_locks
from infra.constructs.alarms.alarm_rule import AlarmGroup, Severity
from infra.constructs.alarms.alarms import Alarms, Topics
from infra.constructs.alarms.composite_alarms import COMPOSITE_STACK, CompositeAlarms, count_alarms, own_alarms
from infra.project_checks import check_project
from infra.settings import Scheduler, Settings, load_settings
from infra.stacks.base import DeploymentStack, Parts
from infra.stacks.dashboards import SubjectDashboardsStack
from infra.stacks.eventbridge_schedule import EventBridgeScheduleStack
from infra.stacks.late import LateStack
from infra.stacks.monitoring import MonitoringStack
from infra.stacks.processing import ProcessingStack
from infra.stacks.receiver import ReceiverStack
from infra.stacks.schedule import ScheduleStack
from infra.stacks.storage import StorageStack
from slackwater.costs.prices import read_prices
from slackwater.errors import DefinitionError, SlackwaterError
from slackwater.project.environments import check_target
from slackwater.project.project import load_project

ROOT = Path(__file__).parent.parent
MOST_ALARMS = 400
"""With more alarms, those of pipelines and sources have stacks of their own.

CloudFormation allows 500 resources in a stack. The monitoring stack has others, such as one for each e-mail address.
"""
# One stack for both schedulers: a deployment with the other one deletes the first, but creates the new one before.
# docs/schedule.md says how to change the scheduler without a time in which both start work.
_SCHEDULES = {Scheduler.EVENTBRIDGE: EventBridgeScheduleStack, Scheduler.AIRFLOW: ScheduleStack}
_TOO_MANY_RESOURCES = re.compile(r"resources in stack '([^']+)': (\d+) is greater than allowed maximum of (\d+)")


def context(root: Path = ROOT) -> dict[str, Any]:
    """Return the context values of `cdk.json`: feature flags of the CDK, and settings."""
    values: dict[str, Any] = json.loads((root / "cdk.json").read_text(encoding="utf-8"))["context"]
    return values


def create_app(settings: Settings, *, context: Mapping[str, Any] | None = None, folder: str | None = None) -> App:
    """Return an app without stacks, for the CDK bootstrap of the settings. `folder` is for tests."""
    # The synthesizer reads the qualifier from the context itself.
    synthesizer = DefaultStackSynthesizer(file_assets_bucket_name=settings.bootstrap_bucket)
    return App(default_stack_synthesizer=synthesizer, context=context, outdir=folder)


def add_stacks(
    app: App, *, settings: Settings, artefacts: Artefacts, root: Path = ROOT, most_alarms: int = MOST_ALARMS
) -> None:
    """Add all stacks to the app. `most_alarms` is how many alarms the monitoring stack has at most, for tests.

    Raises `DefinitionError` when the project or a state machine is malformed, and `InputError` for a price file that is
    not valid.
    """
    # First: nothing else is built for the wrong account.
    env = target(account=settings.account, region=settings.region, credentials=os.environ)
    if env and env.region:
        # With a price file that is not valid, no run would get a price.
        read_prices(env.region)
    project = load_project(root / settings.project, code=artefacts.code)
    check_project(project, settings, missing_steps=artefacts.missing_steps)
    parts = Parts(settings=settings, project=project, artefacts=artefacts, root=root, env=env)
    storage = StorageStack(app, parts)
    receiver = ReceiverStack(app, parts, storage)
    processing = ProcessingStack(app, parts, storage, receiver)
    late = LateStack(app, parts, storage, processing)
    monitoring = MonitoringStack(app, parts, storage, processing, late)
    add_alarms(app, monitoring, parts, topics=monitoring.topics, divided=count_alarms(settings, project) > most_alarms)
    for kind in ("pipeline", "source") if settings.subject_dashboards else ():
        SubjectDashboardsStack(app, kind, parts)
    schedule_stack = _SCHEDULES.get(settings.schedule)
    if schedule_stack is ScheduleStack and settings.airflow_environment:
        schedule_stack = None  # the environment exists
    if schedule_stack:
        schedule = schedule_stack(app, parts)
        # Nothing is started before the state machines exist, or without the queue for what cannot be started.
        for stack in (processing, late, monitoring):
            schedule.add_stack_dependency(stack)
    Tags.of(app).add("application", settings.prefix)


def add_alarms(app: App, monitoring: Stack, parts: Parts, *, topics: Topics, divided: bool) -> None:
    """Add the alarms of pipelines and sources, and the composite alarms: to the monitoring stack, or divided.

    If they are divided, each group of alarms has a stack, and so have the composite alarms.
    """
    settings, project = parts.settings, parts.project

    def scope(name: str) -> tuple[Stack, str]:
        """Return the stack of these alarms, and the id of their construct in it."""
        return (DeploymentStack(app, name, parts, name), "Alarms") if divided else (monitoring, name)

    stacks = [monitoring]
    for group in AlarmGroup:
        stack, id_ = scope(group.value)
        Alarms(stack, id_, settings=settings, project=project, topics=topics, group=group)
        if divided and own_alarms(stack):
            # Alarms that were in the monitoring stack are deleted there before they are created here.
            stack.add_stack_dependency(monitoring)
            stacks.append(stack)
        elif divided:
            app.node.try_remove_child(stack.node.id)  # CloudFormation accepts no stack without resources
    stack, id_ = scope(COMPOSITE_STACK)
    CompositeAlarms(stack, id_, settings=settings, project=project, topic=topics[Severity.PAGE])
    for other in stacks if divided else ():
        stack.add_stack_dependency(other)


def target(*, account: str | None, region: str | None, credentials: Mapping[str, str]) -> Environment | None:
    """Return account and region of the stacks; None if they fit every one.

    `account` and `region` are the settings. `credentials` are the environment variables in which the CDK's command line
    gives the account and region of the credentials, if there are any. Raises `DefinitionError` if they are others.
    """
    actual = {"account": credentials.get("CDK_DEFAULT_ACCOUNT"), "region": credentials.get("CDK_DEFAULT_REGION")}
    check_target(account=account, region=region, credentials=actual)
    account, region = account or actual["account"], region or actual["region"]
    return Environment(account=account, region=region) if account and region else None


def write_templates(app: App) -> None:
    """Synthesise the app. Raises `DefinitionError` for a project that is too large for one of its stacks."""
    try:
        app.synth()
    except RuntimeError as error:  # all errors of the CDK have this class
        if large := _TOO_MANY_RESOURCES.search(str(error)):
            stack, count, limit = large.groups()
            raise DefinitionError(
                f"the stack {stack} would have {count} resources, and CloudFormation allows {limit}: divide the "
                "pipelines and sources into several projects, and deploy each with a prefix of its own"
            ) from error
        raise


def main() -> int:
    """Synthesise the app; return the exit code. An error that the user can fix is one line on standard error."""
    try:
        # This app only reads the context. Without auto_synth=False, it would also write its empty assembly at the end.
        settings = load_settings(App(auto_synth=False).node.get_all_context())
        packages = tuple(Path.cwd() / package for package in settings.step_packages)
        settings = settings.model_copy(update={"step_packages": packages})
        # A project without a clone has no cdk.json, or one with settings only. Of two values, that of the CDK counts.
        app = create_app(settings, context=context())
        locks = optional_locks(ROOT / settings.project)
        add_stacks(app, settings=settings, artefacts=build_artefacts(root=ROOT, settings=settings, locks=locks))
        write_templates(app)
    except SlackwaterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
