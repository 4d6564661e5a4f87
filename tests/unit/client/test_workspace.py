"""The workspace of a command: root, project, cloud."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

import slackwater
from slackwater.aws.clients import default_session
from slackwater.client import resources
from slackwater.client.workspace import Workspace, find_workspace
from slackwater.errors import InputError
from slackwater.local import cloud
from slackwater.local.cloud import LocalCloud
from slackwater.project import installation

pytestmark = pytest.mark.unit

REPOSITORY = Path(slackwater.__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path):
    """A checkout with a project."""
    (tmp_path / "cdk.json").write_text("{}")
    (tmp_path / "projects" / "mine" / "sources").mkdir(parents=True)
    return tmp_path


def test_the_current_folder_is_the_project_when_it_is_one(repository, monkeypatch):
    monkeypatch.chdir(repository / "projects" / "mine")
    assert find_workspace(None) == Workspace(root=repository, project=repository / "projects" / "mine")


def test_the_example_is_the_project_otherwise(repository, monkeypatch):
    monkeypatch.chdir(repository / "projects")
    assert find_workspace(None) == Workspace(root=repository, project=repository / "examples" / "nyc_flights")


def test_the_project_option_is_used_and_may_be_relative(repository, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(repository)
    assert find_workspace(Path("projects/mine")).project == repository / "projects" / "mine"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert find_workspace(repository / "projects" / "mine").root == repository


def test_a_project_outside_of_a_checkout_uses_the_current_checkout(repository, monkeypatch, tmp_path_factory):
    outside = tmp_path_factory.mktemp("project")
    monkeypatch.chdir(repository / "projects")
    assert find_workspace(outside) == Workspace(root=repository, project=outside)


def test_outside_of_a_checkout_the_installed_one_is_the_root(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        installation, "__file__", str(tmp_path / "site-packages" / "slackwater" / "project" / "installation.py")
    )
    assert find_workspace(None).root == tmp_path
    assert find_workspace(tmp_path / "mine") == Workspace(root=tmp_path / "mine", project=tmp_path / "mine")
    checkout = tmp_path / "checkout"
    (checkout / "src" / "slackwater").mkdir(parents=True)
    (checkout / "cdk.json").write_text("{}")
    monkeypatch.setattr(installation, "__file__", str(checkout / "src" / "slackwater" / "project" / "installation.py"))
    assert find_workspace(None).root == checkout


@pytest.mark.parametrize("folder", ["sources", "pipelines"])
def test_a_project_outside_of_the_installed_checkout_is_its_own_root(monkeypatch, tmp_path, folder):
    checkout, project = tmp_path / "checkout", tmp_path / "project"
    inside = checkout / "examples" / "mine"
    for made in (checkout / "src" / "slackwater", project / folder, inside / folder):
        made.mkdir(parents=True)
    (checkout / "cdk.json").write_text("{}")
    monkeypatch.setattr(installation, "__file__", str(checkout / "src" / "slackwater" / "project" / "installation.py"))
    monkeypatch.chdir(project)
    assert find_workspace(None) == Workspace(root=project, project=project)
    monkeypatch.chdir(tmp_path)
    assert find_workspace(project) == Workspace(root=project, project=project)
    assert find_workspace(inside) == Workspace(root=checkout, project=inside)
    assert find_workspace(None) == Workspace(root=checkout, project=checkout / "examples" / "nyc_flights")


@pytest.fixture
def environment(monkeypatch):
    """An environment without a cloud, restored after the test."""
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"]})
    yield os.environ
    default_session.cache_clear()  # it reads this environment


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / ".slackwater").mkdir()
    return Workspace(root=tmp_path, project=tmp_path)


def test_an_endpoint_in_the_environment_is_used(environment, workspace):
    environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    (workspace.state / "cloud.json").write_text("{}")
    assert workspace.connect_cloud() == "http://127.0.0.1:1"
    assert [name for name in environment if name.startswith("AWS_")] == ["AWS_ENDPOINT_URL"]


def test_a_running_local_cloud_is_used_with_its_settings_and_those_of_the_environment(
    environment, workspace, monkeypatch
):
    (workspace.state / "cloud.json").write_text("{}")
    running = LocalCloud("http://127.0.0.1:2", 1, "eu-west-1", "000000000000", "2013-03-10T00:00:00Z")
    monkeypatch.setattr(cloud, "status", {workspace.root: running}.get)
    environment["SLACKWATER_SET"] = "log_level=DEBUG"
    assert workspace.connect_cloud() == "the local cloud at http://127.0.0.1:2"
    assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:2"
    assert environment["AWS_REGION"] == "eu-west-1"
    assert environment["SLACKWATER_SET"].startswith("outbound_allow=127.0.0.1")
    assert environment["SLACKWATER_SET"].endswith(" log_level=DEBUG")


def test_aws_is_used_without_a_local_cloud(environment, workspace):
    assert workspace.connect_cloud() == "AWS"
    assert not [name for name in environment if name.startswith("AWS_")]


def test_a_project_that_has_used_a_local_cloud_uses_aws_only_if_it_is_told(environment, workspace, monkeypatch):
    (workspace.state / "cloud.json").write_text("{}")
    monkeypatch.setattr(cloud, "status", lambda _: None)
    with pytest.raises(InputError, match="no local cloud runs here: start it with `slackwater local up`, or add --aws"):
        workspace.connect_cloud()
    assert replace(workspace, chosen_environment="dev").connect_cloud() == "AWS"
    for name, value in (("SLACKWATER_ENVIRONMENT", "dev"), ("SLACKWATER_AWS", "1")):
        environment[name] = value
        assert workspace.connect_cloud() == "AWS"
        del environment[name]


def test_aws_is_used_beside_a_running_local_cloud_if_it_is_told(environment, workspace, monkeypatch):
    (workspace.state / "cloud.json").write_text("{}")
    running = LocalCloud("http://127.0.0.1:2", 1, "eu-west-1", "000000000000", "2013-03-10T00:00:00Z")
    monkeypatch.setattr(cloud, "status", lambda _: running)
    environment["SLACKWATER_AWS"] = "1"
    assert workspace.connect_cloud() == "AWS"


def test_a_target_has_all_that_tells_it_from_others(environment, workspace):
    where = {"account": "123456789012", "region": "eu-west-1"}
    assert workspace.target_name("AWS", **where) == "AWS account 123456789012, region eu-west-1"
    assert workspace.target_name("the local cloud at http://127.0.0.1:2", **where) == (
        "the local cloud at http://127.0.0.1:2"
    )
    environment["SLACKWATER_ENVIRONMENT"] = "prod"
    assert workspace.target_name("AWS", **where) == (
        "AWS account 123456789012, region eu-west-1, environment prod, prefix slackwater-prod"
    )


def test_every_command_takes_prefix_and_qualifier_from_cdk_json_and_the_prefix_from_the_environment(
    environment, workspace
):
    assert (workspace.prefix, workspace.bootstrap_qualifier) == ("slackwater", "hnb659fds")
    context = {"slackwater:prefix": "mine", "@aws-cdk/core:bootstrapQualifier": "acme"}
    (workspace.root / "cdk.json").write_text(json.dumps({"context": context}))
    assert (workspace.prefix, workspace.bootstrap_qualifier) == ("mine", "acme")
    environment["SLACKWATER_PREFIX"] = "yours"
    assert workspace.prefix == "yours"
    environment["SLACKWATER_PREFIX"] = ""
    assert workspace.prefix == "mine"


def test_a_connection_reads_the_deployment_of_its_prefix(environment, workspace, monkeypatch):
    environment |= {"SLACKWATER_PREFIX": "yours", "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "us-east-1"}
    prefixes = []
    deployment = SimpleNamespace(pull_machine_arn="arn:aws:states:us-east-1:123456789012:stateMachine:yours-pull")

    def read_deployment(_, *, prefix):
        prefixes.append(prefix)
        return deployment

    monkeypatch.setattr(resources, "read_deployment", read_deployment)
    connection = resources.connect(workspace, "any project")
    connection.clients.close()
    assert (prefixes, connection.cloud) == (["yours"], "http://127.0.0.1:1, prefix yours")


@pytest.mark.parametrize("content", ["{", "[]", '{"context": 1}'])
def test_a_broken_cdk_json_is_named(workspace, content):
    (workspace.root / "cdk.json").write_text(content)
    with pytest.raises(InputError, match=r"cdk\.json is not a JSON object"):
        _ = workspace.prefix


def test_of_an_installed_wheel_only_the_project_is_used(monkeypatch, tmp_path):
    package, project = tmp_path / "site-packages" / "slackwater", tmp_path / "project"
    (package / "_deployed").mkdir(parents=True)
    (package / "_deployed" / "cdk.json").write_text("{}")
    project.mkdir()
    monkeypatch.setattr(installation, "__file__", str(package / "project" / "installation.py"))
    monkeypatch.chdir(project)
    assert find_workspace(None) == Workspace(root=project, project=project)


def test_every_command_finds_the_prefix_of_its_environment(environment, workspace):
    environment["SLACKWATER_ENVIRONMENT"] = "staging"
    assert workspace.prefix == "slackwater-staging"
    assert replace(workspace, chosen_environment="prod").prefix == "slackwater-prod"
    cdk = {"slackwater:environment": "dev", "slackwater:environments": {"staging": {"prefix": "acme-test"}}}
    (workspace.root / "cdk.json").write_text(json.dumps({"context": cdk}))
    assert workspace.prefix == "acme-test"
    environment["SLACKWATER_ENVIRONMENT"] = ""
    assert (workspace.environment, workspace.prefix) == ("dev", "slackwater-dev")
    environment["SLACKWATER_PREFIX"] = "mine"
    assert workspace.prefix == "mine"


def test_account_and_region_are_those_of_the_environment_unless_cdk_json_has_them_for_all(environment, workspace):
    assert workspace.target == {"account": None, "region": None}
    cdk = {"slackwater:environments": {"dev": {"account": "111111111111"}, "prod": {"region": "us-east-1"}}}
    (workspace.root / "cdk.json").write_text(json.dumps({"context": {**cdk, "slackwater:region": "eu-west-1"}}))
    assert workspace.target == {"account": None, "region": "eu-west-1"}
    environment["SLACKWATER_ENVIRONMENT"] = "dev"
    assert workspace.target == {"account": "111111111111", "region": "eu-west-1"}
    # As in a deployment: what is not below an environment counts for all of them.
    assert replace(workspace, chosen_environment="prod").target["region"] == "eu-west-1"


def test_a_prefix_that_every_environment_would_have_is_refused_with_the_remedy(environment, workspace):
    (workspace.root / "cdk.json").write_text('{"context": {"slackwater:prefix": "acme"}}')
    environment["SLACKWATER_ENVIRONMENT"] = "dev"
    with pytest.raises(InputError, match=r"cdk.json: slackwater:prefix: .* move it to slackwater:environments"):
        _ = workspace.prefix


@pytest.mark.parametrize(
    ("name", "environments", "message"),
    [
        ("production", {}, "environment: 'production' is none of dev, staging, prod: correct --environment"),
        ("dev", [], "cdk.json: slackwater:environments: write an object"),
        ("dev", {"dev": "123456789012"}, "cdk.json: slackwater:environments: write an object"),
        ("dev", {"test": {}}, "cdk.json: slackwater:environments.test: no such environment, only dev, staging, prod"),
    ],
)
def test_a_wrong_environment_is_named(environment, workspace, name, environments, message):
    environment["SLACKWATER_ENVIRONMENT"] = name
    (workspace.root / "cdk.json").write_text(json.dumps({"context": {"slackwater:environments": environments}}))
    with pytest.raises(InputError, match=re.escape(message)):
        _ = workspace.prefix


def test_the_local_cloud_that_commands_use_is_saved_also_if_it_is_that_of_another_project(monkeypatch, workspace):
    paths = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_error(404)  # as another program answers

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        workspace.save_local_cloud()
        server.shutdown()
        thread.join()
    assert paths == ["/_slackwater/save"]
    workspace.save_local_cloud()  # nothing answers any more
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.eu-west-1.amazonaws.com")
    workspace.save_local_cloud()
