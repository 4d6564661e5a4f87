"""An update from the previous version deletes and replaces no resource with data, under any setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra.assembly import Assembly
from tests.infra.stateful import replaced, stateful

pytestmark = pytest.mark.infra

_PREVIOUS = Path(__file__).parent / "previous"


def previous(schedule: str) -> dict[str, Any]:
    """The resources with data of the previous version, with this scheduler."""
    recorded: dict[str, Any] = json.loads((_PREVIOUS / f"{schedule}.json").read_text())
    return recorded


@pytest.mark.parametrize(("fixture", "schedule"), [("assembly", "eventbridge"), ("scheduled", "airflow")])
def test_an_update_from_the_previous_version_replaces_nothing(
    fixture: str, schedule: str, request: pytest.FixtureRequest
) -> None:
    synthesised: Assembly = request.getfixturevalue(fixture)
    assert replaced(previous(schedule), stateful(synthesised.templates)) == []


def test_the_record_has_everything_that_holds_data() -> None:
    recorded = previous("airflow")
    storage = {name.rstrip("0123456789ABCDEF") for name in recorded["slackwater-storage"]}
    expected = {"Raw", "Exchange", "Warehouse", "FileTable", "RunTable", "TokenTable", "EventBufferQueue"}
    assert expected <= storage
    assert any(item["Type"] == "AWS::S3::Bucket" for item in recorded["slackwater-schedule"].values())
    [tokens] = [item for name, item in recorded["slackwater-storage"].items() if name.startswith("TokenTable")]
    assert tokens["Fixed"]["KeySchema"] == [{"AttributeName": "token_hash", "KeyType": "HASH"}]


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
