"""What each function and each job uses can be made from its own settings."""

from __future__ import annotations

import io
from argparse import Namespace
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from lambdas import (
    check_arrivals,
    check_days,
    compare_versions,
    fetch_file,
    freeze_inputs,
    notify_change,
    pack_objects,
    record_run,
    remove_stale,
)
from slackwater.aws import warehouse
from slackwater.aws.clients import CONFIG, Clients
from slackwater.aws.executions.airflow import CheckRuns
from slackwater.aws.function_resources import function_resources
from slackwater.aws.resources import Resources
from tests.example_project import example_project
from tests.function_variables import VARIABLES

pytestmark = pytest.mark.unit

USES = {
    "receive-events": ("events_api", "event_counts", "state_table", "state_messages"),
    "store-events": ("project", "receiver"),
    "redrive-events": ("project", "redriver", "state_table", "state_messages"),
    "list-files": (
        *("project", "store", "file_cache", "state_table", "state_messages"),
        *("settings.exchange_bucket", "settings.outbound_allow"),
    ),
    "fetch-file": (
        fetch_file.fetcher,
        "file_cache",
        "raw_writer",
        "state_table",
        "event_counts",
        "arrivals",
        "state_messages",
        "settings.outbound_allow",
    ),
    "update-raw-tables": ("raw_tables",),
    "remove-stale": ("project", remove_stale.stale_objects),
    "pack-objects": ("project", pack_objects.hour_packer),
    "freeze-inputs": (freeze_inputs.freezer,),
    "await-inputs": ("waits", "arrivals", "live_windows"),
    "record-run": (record_run.recorder,),
    "check-days": (check_days.monitor, "state_messages"),
    "fold-state": ("period_folder",),
    "check-arrivals": (check_arrivals.arrival_checks,),
    "compare-versions": (compare_versions.versions,),
    "notify-change": (notify_change.notifier, "costs"),
    "write-ledger": ("ledger",),
    "maintain-tables": ("project", "table_maintenance"),
    "send-lineage": (
        *("project", "store", "run_table", "secrets"),
        *("settings.openlineage_url", "settings.openlineage_secret", "settings.openlineage_namespace"),
        *("settings.warehouse_database", "settings.files_prefix", "settings.outbound_allow"),
    ),
    "start-scheduled": ("state_machines", "settings.state_machine_prefix"),
}
"""The resources that each function uses, and what it composes of them."""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that have the project, and no settings in the environment but those of Lambda."""
    body = example_project().model_dump_json(by_alias=True).encode()

    def client(_: object, service: str, *, config: object) -> Any:
        return SimpleNamespace(get_object=lambda **_: {"Body": io.BytesIO(body)})

    monkeypatch.setattr(boto3.session.Session, "client", client)
    monkeypatch.setattr(warehouse, "open_catalog_to_write", lambda: None)
    for name in set().union(*VARIABLES.values(), {"AIRFLOW_ENVIRONMENT"}):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def test_each_function_is_listed() -> None:
    assert USES.keys() == VARIABLES.keys()


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("function", USES)
def test_the_variables_of_a_function_suffice_for_what_it_uses(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    values = {"KEPT_DAYS": "29", "INTERMEDIATE_DAYS": "0", "FUNCTION_MB": "{}"}
    for name in VARIABLES[function]:
        monkeypatch.setenv(name, values.get(name, "s3://assets/project.json"))
    # The request of freeze_inputs names the project.
    settings = {"project_uri": "s3://assets/project.json"} if function == "freeze-inputs" else {}
    resources = function_resources.__wrapped__(**settings)
    for use in USES[function]:
        assert (use if callable(use) else attrgetter(use))(resources) is not None


@pytest.mark.usefixtures("aws")
def test_checks_are_dag_runs_if_the_deployment_names_an_airflow_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES["check-arrivals"], "AIRFLOW_ENVIRONMENT"):
        monkeypatch.setenv(name, "s3://assets/project.json")
    checks = check_arrivals.arrival_checks(function_resources.__wrapped__())
    assert isinstance(checks.start, CheckRuns)
    assert checks.start.airflow.name == "s3://assets/project.json"


@pytest.mark.usefixtures("aws")
def test_a_setting_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttributeError, match="run_table"):
        _ = function_resources.__wrapped__().run_table


@pytest.mark.usefixtures("aws")
def test_a_job_has_its_settings_in_its_arguments() -> None:
    options = Namespace(project_uri="s3://assets/project.json", file_table="files", raw_bucket="r")
    resources = Resources(options, Clients(CONFIG))
    assert resources.project.pipelines
    assert resources.raw_writer.store is resources.store
    assert resources.file_cache is not None


@pytest.mark.usefixtures("aws")
def test_what_a_later_call_makes_up_for_is_sent_once() -> None:
    resources = function_resources.__wrapped__(CONFIG)
    assert resources.once.clients is not resources.clients
    assert resources.once.settings is resources.settings
