"""Alarms that move between the monitoring stack and stacks of their own keep their names, and all of them exist."""

from __future__ import annotations

import pytest
from aws_cdk import App, DefaultStackSynthesizer, Stack
from aws_cdk import aws_sns as sns

from infra.app import ROOT, add_alarms
from infra.constructs.alarms.alarm_rule import Severity
from infra.constructs.alarms.alarm_rules import alarm_names
from infra.constructs.alarms.alarms import Alarms
from infra.settings import Settings
from slackwater.aws.deployment import ALARM_STACKS
from slackwater.deploy import deploy as deployment
from slackwater.project.project import load_project
from tests.infra.assembly import parts_of

pytestmark = pytest.mark.cloud

PREFIX = "moves"
SETTINGS = Settings(prefix=PREFIX)
QUEUES = {
    name: name
    for name in (
        *("dead-letters", "events", "event-dead-letters"),
        *("arrivals", "arrival-dead-letters", "states", "state-dead-letters"),
    )
}


@pytest.fixture(scope="module")
def project():
    return load_project(ROOT / SETTINGS.project)


@pytest.fixture(scope="module")
def assemblies(project, tmp_path_factory):
    """The monitoring stack with its topics and alarms, and the stacks of alarms: by whether alarms are divided."""
    folders = {}
    for divided in (False, True):
        folders[divided] = tmp_path_factory.mktemp("divided" if divided else "together")
        # The cloud is not bootstrapped.
        synthesizer = DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
        app = App(default_stack_synthesizer=synthesizer, outdir=str(folders[divided]))
        stack = Stack(app, f"{PREFIX}-monitoring")
        topics = {severity: sns.Topic(stack, severity.value) for severity in Severity}
        Alarms(stack, "Alarms", settings=SETTINGS, project=project, topics=topics, queues=QUEUES)
        add_alarms(app, stack, parts_of(SETTINGS, project), topics=topics, divided=divided)
        app.synth()
    return folders


@pytest.fixture
def deploy(bare, monkeypatch):
    """Return a function that deploys an assembly as `slackwater deploy` does: the stacks in order of dependency."""
    cloudformation = bare.client("cloudformation")
    monkeypatch.setattr(deployment, "client", bare.client)
    monkeypatch.setattr("slackwater.aws.deletion._PAUSE", 0.05)

    def deploy_assembly(assembly):
        deployment.release_removed_alarms(assembly, stack=f"{PREFIX}-composite-alarms")
        deployment.delete_obsolete_alarms(assembly, prefix=PREFIX, on_note=deployment.to_stderr)
        exists = {stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]}
        for name in (f"{PREFIX}-{stack}" for stack in ("monitoring", *ALARM_STACKS)):
            if (template := assembly / f"{name}.template.json").exists():
                verb = "update" if name in exists else "create"
                getattr(cloudformation, f"{verb}_stack")(StackName=name, TemplateBody=template.read_text())
                waiter = cloudformation.get_waiter(f"stack_{verb}_complete")
                waiter.wait(StackName=name, WaiterConfig={"Delay": 0.1, "MaxAttempts": 200})

    return deploy_assembly


def deployed(bare):
    """Return the names of all alarms and composite alarms of the deployment, and what failed in its stacks."""
    pages = (
        bare.client("cloudwatch")
        .get_paginator("describe_alarms")
        .paginate(AlarmNamePrefix=f"{PREFIX}-", AlarmTypes=["MetricAlarm", "CompositeAlarm"])
    )
    alarms, composites = [], []
    for page in pages:
        alarms += [alarm["AlarmName"] for alarm in page["MetricAlarms"]]
        composites += [alarm["AlarmName"] for alarm in page["CompositeAlarms"]]
    return sorted(alarms), sorted(composites)


def failures(bare):
    """Return the reasons of all events about resources that could not be created, changed or deleted."""
    cloudformation = bare.client("cloudformation")
    stacks = [stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]]
    events = [
        event
        for name in stacks
        if name.startswith(f"{PREFIX}-")
        for event in cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    ]
    return [event.get("ResourceStatusReason") for event in events if event["ResourceStatus"].endswith("FAILED")]


def test_alarms_that_move_to_other_stacks_and_back_all_exist_afterwards(bare, deploy, assemblies, project):
    expected = sorted(alarm_names(SETTINGS, project))
    composites = sorted(
        f"{PREFIX}-{name}" for name in ("monitor", "events", *map("pipeline-{}".format, project.pipelines))
    )
    for divided in (False, True, False, True):
        deploy(assemblies[divided])
        assert deployed(bare) == (expected, composites)
        stacks = {stack["StackName"] for stack in bare.client("cloudformation").describe_stacks()["Stacks"]}
        assert (f"{PREFIX}-run-alarms" in stacks, f"{PREFIX}-composite-alarms" in stacks) == (divided, divided)
    assert failures(bare) == []
