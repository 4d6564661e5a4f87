"""An update from the version before deletes and replaces no resource with data: by default, with Airflow, as `prod`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.app import ROOT
from tests.infra.assembly import Assembly, synthesised
from tests.infra.stateful import replaced, stateful

pytestmark = pytest.mark.infra

_PREVIOUS = Path(__file__).parent / "previous"


def previous(record: str) -> dict[str, Any]:
    """The resources with data of the previous version, with the settings that `scripts/record-stateful` gives it."""
    recorded: dict[str, Any] = json.loads((_PREVIOUS / f"{record}.json").read_text())
    return recorded


@pytest.mark.parametrize(
    ("fixture", "record"), [("assembly", "eventbridge"), ("scheduled", "airflow"), ("prod", "prod")]
)
def test_an_update_from_the_previous_version_replaces_nothing(
    fixture: str, record: str, request: pytest.FixtureRequest
) -> None:
    deployed: Assembly = request.getfixturevalue(fixture)
    assert replaced(previous(record), stateful(deployed.templates)) == []


def test_the_record_has_everything_that_holds_data() -> None:
    recorded = previous("airflow")
    storage = {name.rstrip("0123456789ABCDEF") for name in recorded["slackwater-storage"]}
    expected = {"Raw", "Exchange", "Warehouse", "FileTable", "RunTable", "TokenTable", "EventBufferQueue"}
    assert expected <= storage
    assert any(item["Type"] == "AWS::S3::Bucket" for item in recorded["slackwater-schedule"].values())
    [tokens] = [item for name, item in recorded["slackwater-storage"].items() if name.startswith("TokenTable")]
    assert tokens["Fixed"]["KeySchema"] == [{"AttributeName": "token_hash", "KeyType": "HASH"}]
    types = Counter(item["Type"] for stack in previous("prod").values() for item in stack.values())
    assert (types["AWS::KMS::Key"], types["AWS::DynamoDB::Table"]) == (1, 3)


def test_a_replacement_is_reported(assembly: Assembly) -> None:
    before = stateful(assembly.templates)
    [table] = [name for name in before["slackwater-storage"] if name.startswith("RunTable")]
    changed = json.loads(json.dumps(assembly.templates))
    changed["slackwater-storage"]["Resources"][table]["Properties"]["KeySchema"].reverse()
    [finding] = replaced(before, stateful(changed))
    assert finding.startswith(f"slackwater-storage: {table}: ")
    del changed["slackwater-storage"]["Resources"][table]
    [finding] = replaced(before, stateful(changed))
    assert finding.endswith(" becomes None")


def test_another_key_is_reported(prod: Assembly) -> None:
    """Its objects would stay, and nobody could read them with the new key."""
    before, storage = stateful(prod.templates), "slackwater-prod-storage"
    [key] = prod.resources("AWS::KMS::Key")
    resources = dict(prod.templates[storage]["Resources"])
    resources["KeyOfAnotherName"] = resources.pop(key)
    [finding] = replaced(before, stateful(prod.templates | {storage: {"Resources": resources}}))
    assert finding.startswith(f"{storage}: {key}: ")
    assert finding.endswith(" becomes None")


def test_a_removed_and_a_renamed_pipeline_lose_no_data_and_leave_nothing_else_behind(
    assembly: Assembly, tmp_path: Path
) -> None:
    """Published tables are no resources of a stack. A log group of a removed state machine is deleted with it."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "nyc_flights", project, ignore=shutil.ignore_patterns("*.py"))
    (project / "pipelines" / "weekly_delays.yaml").unlink()
    daily = project / "pipelines" / "daily_delays.yaml"
    daily.write_text(daily.read_text().replace("pipeline: daily_delays", "pipeline: renamed_delays"))
    daily.rename(daily.with_name("renamed_delays.yaml"))
    changed = synthesised(tmp_path, project=str(project)).templates
    lost = replaced(stateful(assembly.templates), stateful(changed))
    assert {line.partition("'Type': '")[2].partition("'")[0] for line in lost} == {"AWS::Logs::LogGroup"}
    names = json.dumps(changed)
    assert "weekly_delays" not in names
    assert "daily_delays" not in names
    assert "renamed_delays" in names
