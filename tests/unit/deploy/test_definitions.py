"""Changed definitions on the local cloud: without the CDK if no resource changes, else with it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from slackwater.client.workspace import Workspace
from slackwater.deploy import definitions
from slackwater.deploy.deploy import latest_settings
from slackwater.project.project import CodeDigests
from slackwater.steps.registry import registry
from tests.example_project import PROJECT
from tests.fakes_cli import a_client, use_client
from tests.fakes_runs import DictRunTable, DictStore
from tests.unit.cli.test_changes import DAILY, FILES, edited, without

pytestmark = pytest.mark.unit

URI, MACHINE = "s3://assets/old.json", "s3://assets/machine.json"
DEPLOYED = FILES.model_copy(update={"code": CodeDigests(job="1", steps=dict.fromkeys(registry(), "1"))})
STEPS = FILES.pipelines[DAILY].steps
FIRST = next(iter(STEPS))


def with_step(**changes):
    """The files with a change of the first step of a pipeline."""
    return edited(FILES, DAILY, steps={**STEPS, FIRST: STEPS[FIRST].model_copy(update=changes)})


def with_source(**changes):
    weather = FILES.sources["weather"].model_copy(update=changes)
    return FILES.model_copy(update={"sources": {**FILES.sources, "weather": weather}})


@pytest.mark.parametrize(
    "project",
    [
        with_step(parameters={"where": "true"}),
        edited(FILES, DAILY, publish=FILES.pipelines[DAILY].publish.model_copy(update={"metrics": {}})),
        with_source(null_values=("", "none")),
    ],
)
def test_rows_depend_on_no_resource(project):
    assert not definitions.changes_resources(project, DEPLOYED)


@pytest.mark.parametrize(
    "project",
    [
        without(FILES, DAILY),
        edited(FILES, DAILY, deadline_hours=1),
        edited(FILES, DAILY, description="part of the state machine"),
        with_step(exchange=True),
        with_step(parameters={"api": {"credentials": "ssm:a"}}),
        with_step(step="data_quality", parameters={"rules": [{"rule": "row_count", "severity": "invalidate"}]}),
        with_step(step="of_a_package_that_is_not_deployed"),
        with_source(silent_hours=1),
    ],
)
def test_these_changes_need_other_resources(project):
    assert definitions.changes_resources(project, DEPLOYED)


class Stacks:
    """CloudFormation with the templates of stacks."""

    meta = SimpleNamespace(region_name="eu-west-1")

    def __init__(self, store, **templates):
        self._store = store
        self.templates = {f"slackwater-{name}": template for name, template in templates.items()}
        self.updated, self.waited = {}, []

    def get_template(self, *, StackName):  # noqa: N803
        return {"TemplateBody": self.templates.get(StackName, {"Resources": {}})}

    def update_stack(self, *, StackName, TemplateURL, Capabilities):  # noqa: N803
        uri = TemplateURL.replace("https://s3.eu-west-1.amazonaws.com/", "s3://")
        self.updated[StackName] = json.loads(self._store.get(uri))["Resources"]

    def get_waiter(self, _):
        return SimpleNamespace(wait=lambda *, StackName, WaiterConfig: self.waited.append(StackName))  # noqa: N803


@pytest.fixture
def cloud(monkeypatch, tmp_path):
    """A local cloud with a function and a state machine that read the deployed project."""
    machine = {"Properties": {"DefinitionS3Location": {"Bucket": "assets", "Key": "machine.json"}}}
    store = DictStore()
    stacks = Stacks(
        store,
        receiver={"Resources": {"F": {"Properties": {"PROJECT_URI": URI}}}},
        processing=json.dumps({"Resources": {"M": machine}}),
        storage={"Resources": {"B": {}}},
    )
    store.put(MACHINE, f'{{"project": "{URI}"}}'.encode())
    calls = []
    monkeypatch.setenv("SLACKWATER_PREFIX", "slackwater")
    for name, value in {
        "client": lambda _: stacks,
        "S3ObjectStore": lambda _: store,
        "check_definitions": lambda *_, **__: calls.append("check"),
        "deploy": lambda _, settings, **__: calls.append(settings),
    }.items():
        monkeypatch.setattr(definitions, name, value)
    return SimpleNamespace(
        stacks=stacks, store=store, calls=calls, workspace=Workspace(root=tmp_path, project=tmp_path)
    )


def deploy_changes(cloud, project, monkeypatch):
    monkeypatch.setattr(Workspace, "load_project", lambda _: project)
    definitions.deploy_changes(cloud.workspace, deployed=DEPLOYED, uri=URI, on_note=print)


def test_the_deployed_project_is_replaced_where_functions_and_state_machines_read_it(cloud, monkeypatch):
    project = with_step(parameters={"where": "true"})
    deploy_changes(cloud, project, monkeypatch)
    [uri] = [
        uri for uri in cloud.store.objects if uri not in {URI, MACHINE} and b'"where":"true"' in cloud.store.get(uri)
    ]
    # With the digests of the deployed code, so that only days of changed definitions become stale.
    assert json.loads(cloud.store.get(uri))["code"] == DEPLOYED.code.model_dump()
    resources = cloud.stacks.updated
    assert resources["slackwater-receiver"] == {"F": {"Properties": {"PROJECT_URI": uri}}}
    key = resources["slackwater-processing"]["M"]["Properties"]["DefinitionS3Location"]["Key"]
    assert json.loads(cloud.store.get(f"s3://assets/{key}")) == {"project": uri}
    assert sorted(resources) == sorted(cloud.stacks.waited) == ["slackwater-processing", "slackwater-receiver"]
    assert cloud.calls == ["check"]


def test_other_changes_are_deployed_by_the_cdk_with_the_latest_settings(cloud, monkeypatch):
    assert latest_settings(cloud.workspace) == {}
    cloud.workspace.state.mkdir()
    for prefix, schedule in (("slackwater", "none"), ("other", "airflow")):
        (cloud.workspace.state / f"settings-{prefix}.json").write_text(json.dumps({"schedule": schedule}))
    deploy_changes(cloud, edited(FILES, DAILY, deadline_hours=1), monkeypatch)
    assert (cloud.calls, cloud.stacks.updated) == ([{"schedule": "none"}], {})


@pytest.fixture
def run_(monkeypatch, printed_by):
    """Run a day in a cloud, whose run fails; return what was deployed and printed before."""

    def run_(*options, days=("--date", "2013-03-08"), endpoint="http://127.0.0.1:2", deployed=None):
        calls = []
        client = a_client(
            FILES,
            run_table=DictRunTable(),
            deployed=deployed or edited(FILES, DAILY, deadline_hours=1),
            deployment=SimpleNamespace(project_uri=URI, pipeline_machine_prefix="arn:machine:"),
        )
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setattr(definitions, "deploy_changes", lambda *_, **options: calls.append(options["uri"]))
        use_client(monkeypatch, client)
        shown = printed_by("run", DAILY, *days, *options, *PROJECT, code=1)
        return calls, shown.err.splitlines()[1]

    return run_


@pytest.mark.parametrize("days", [("--date", "2013-03-08"), ("--from", "2013-03-08", "--to", "2013-03-09")])
def test_run_deploys_changes_to_a_local_cloud_first(run_, days):
    calls, line = run_(days=days)
    assert calls == [URI]
    assert line == "deploying first (not with --no-deploy): pipelines/daily_delays.yaml changed"


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (["--no-deploy"], {}),
        ([], {"endpoint": "https://vpce.example"}),
        # What is removed is asked for by `slackwater deploy`.
        ([], {"deployed": FILES.model_copy(update={"pipelines": {**FILES.pipelines, "old": FILES.pipelines[DAILY]}})}),
    ],
)
def test_run_only_says_that_there_are_changes(run_, options, more):
    calls, line = run_(*options, **more)
    assert calls == []
    assert line.startswith("the files differ from what is deployed: pipelines/")


def test_run_of_an_unchanged_project_deploys_nothing(run_):
    assert run_(deployed=FILES)[0] == []
