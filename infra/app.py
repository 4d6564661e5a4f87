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

from infra.artefacts import Artefacts, build_artefacts, write_project
from infra.constructs.alarms.alarm_rules import AlarmGroup, Severity
from infra.constructs.alarms.alarms import SubjectAlarms, Topics
from infra.constructs.alarms.composite_alarms import COMPOSITE_STACK, CompositeAlarms, count_alarms, own_alarms
from infra.settings import Scheduler, Settings, load_settings
from infra.stacks.dashboards import PipelineDashboardsStack, SourceDashboardsStack
from infra.stacks.eventbridge_schedule import START_FUNCTION, EventBridgeScheduleStack
from infra.stacks.late import LateStack
from infra.stacks.monitoring import MonitoringStack
from infra.stacks.processing import ProcessingStack
from infra.stacks.receiver import ReceiverStack
from infra.stacks.schedule import ScheduleStack
from infra.stacks.storage import StorageStack
from infra.state_machines import read_machine
from slackwater.costs.prices import read_prices
from slackwater.errors import DefinitionError, SlackwaterError
from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.retries import with_retries
from slackwater.project.environments import check_target
from slackwater.project.project import Project, load_project
from slackwater.project.schedule import (
    BACKFILL_MACHINE,
    COMPARE_MACHINE,
    MONITOR_MACHINE,
    PIPELINE_MACHINE_PREFIX,
    PULL_MACHINE,
)

ROOT = Path(__file__).parent.parent
MOST_ALARMS = 400
"""With more alarms, those of pipelines and sources have stacks of their own.

CloudFormation allows 500 resources in a stack. The monitoring stack has others, such as one for each e-mail address.
"""
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
    check_steps(project, artefacts)
    project_file = write_project(root=root, project=project)
    frame = read_machine(root / "step_functions" / "pipeline.asl.json")
    lambdas = root / "lambdas"
    storage = StorageStack(app, settings.named("storage"), settings=settings, project=project, env=env)
    receiver = ReceiverStack(
        app,
        settings.named("receiver"),
        settings=settings,
        project=project,
        storage=storage,
        layer=artefacts.layer,
        lambdas=lambdas,
        project_file=project_file,
        env=env,
    )
    processing = ProcessingStack(
        app,
        settings.named("processing"),
        settings=settings,
        project=project,
        storage=storage,
        receiver=receiver,
        layer=artefacts.layer,
        archive=artefacts.archive,
        lambdas=lambdas,
        jobs=root / "glue_jobs",
        project_file=project_file,
        pull=with_retries(read_machine(root / "step_functions" / "pull_source.asl.json")),
        pipelines={name: compile_machine(pipeline, frame) for name, pipeline in project.pipelines.items()},
        env=env,
    )
    late = LateStack(
        app,
        settings.named("late"),
        settings=settings,
        project=project,
        storage=storage,
        processing=processing,
        layer=artefacts.layer,
        lambdas=lambdas,
        project_file=project_file,
        compare=with_retries(read_machine(root / "step_functions" / "compare_day.asl.json")),
        monitor=with_retries(read_machine(root / "step_functions" / "monitor_days.asl.json")),
        backfill=with_retries(read_machine(root / "step_functions" / "backfill.asl.json")),
        env=env,
    )
    monitoring = MonitoringStack(
        app,
        settings.named("monitoring"),
        settings=settings,
        project=project,
        # Each module of lambdas/ is one function.
        functions=sorted(
            path.stem.replace("_", "-")
            for path in lambdas.glob("*.py")
            if path.stem != START_FUNCTION or settings.schedule is Scheduler.EVENTBRIDGE
        ),
        machines=[
            PULL_MACHINE,
            *(f"{PIPELINE_MACHINE_PREFIX}{name}" for name in sorted(project.pipelines)),
            COMPARE_MACHINE,
            MONITOR_MACHINE,
            BACKFILL_MACHINE,
        ],
        monitor=MONITOR_MACHINE,
        application_id=processing.spark.id,
        buffer=storage.buffer,
        changes=late.changes,
        arrivals=late.arrivals.name,
        env=env,
    )
    divided = count_alarms(settings, project) > most_alarms
    topics = monitoring.topics
    add_alarms(app, monitoring, topics=topics, settings=settings, project=project, divided=divided, env=env)
    if settings.subject_dashboards:
        name = settings.named("pipeline-dashboards")
        PipelineDashboardsStack(app, name, settings=settings, project=project, env=env)
        SourceDashboardsStack(app, settings.named("source-dashboards"), settings=settings, project=project, env=env)
    # One stack for both schedulers: a deployment with the other one deletes the first, but creates the new one before.
    # docs/schedule.md says how to change the scheduler without a time in which both start work.
    schedule: Stack | None = None
    match settings.schedule:
        case Scheduler.EVENTBRIDGE:
            schedule = EventBridgeScheduleStack(
                app,
                settings.named("schedule"),
                settings=settings,
                project=project,
                layer=artefacts.layer,
                lambdas=lambdas,
                dead_letters=monitoring.dead_letters.name,
                env=env,
            )
        case Scheduler.AIRFLOW:
            schedule = ScheduleStack(
                app,
                settings.named("schedule"),
                settings=settings,
                dags=root / "mwaa_dags",
                project=project,
                env=env,
            )
    # Nothing is started before the state machines exist, or without the queue for what cannot be started.
    if schedule:
        for stack in (processing, late, monitoring):
            schedule.add_stack_dependency(stack)
    Tags.of(app).add("application", settings.prefix)


def add_alarms(
    app: App,
    monitoring: Stack,
    *,
    topics: Topics,
    settings: Settings,
    project: Project,
    divided: bool,
    env: Environment | None = None,
) -> None:
    """Add the alarms of pipelines and sources, and the composite alarms: to the monitoring stack, or divided.

    If they are divided, each group of alarms has a stack, and so have the composite alarms.
    """
    stacks: list[Stack] = []
    for group in AlarmGroup:
        name = group.value
        if not divided:
            SubjectAlarms(monitoring, name, settings=settings, project=project, topics=topics, group=group)
            continue
        stack = Stack(app, settings.named(name), env=env, description=f"Slackwater: {name}")
        SubjectAlarms(stack, "Alarms", settings=settings, project=project, topics=topics, group=group)
        if own_alarms(stack):
            # Alarms that were in the monitoring stack are deleted there before they are created here.
            stack.add_stack_dependency(monitoring)
            stacks.append(stack)
        else:
            app.node.try_remove_child(stack.node.id)  # CloudFormation accepts no stack without resources
    name, pages = COMPOSITE_STACK, topics[Severity.PAGE]
    if not divided:
        CompositeAlarms(monitoring, name, settings=settings, project=project, topic=pages)
        return
    stack = Stack(app, settings.named(name), env=env, description=f"Slackwater: {name}")
    CompositeAlarms(stack, "Alarms", settings=settings, project=project, topic=pages)
    for other in (monitoring, *stacks):
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


def check_steps(project: Project, artefacts: Artefacts) -> None:
    """Raise `DefinitionError` for a step that pipelines use and that the archive of Spark jobs lacks."""
    for name, pipeline in project.pipelines.items():
        for section, uses in (("steps", pipeline.steps), ("load", pipeline.load)):
            for place, use in uses.items():
                if use.step in artefacts.missing_steps:
                    raise DefinitionError(
                        f"pipeline {name}: {section}.{place}.step: Spark jobs do not get the package of {use.step}: "
                        "add its wheel or its folder to the setting step_packages"
                    )


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
        add_stacks(app, settings=settings, artefacts=build_artefacts(root=ROOT, settings=settings))
        write_templates(app)
    except SlackwaterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
