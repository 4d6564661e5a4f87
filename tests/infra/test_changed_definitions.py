"""What a synthesis leaves of earlier ones, and which changes of definitions need none."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import pytest

from slackwater.deploy.cdk import remove_former, remove_uploaded
from slackwater.deploy.definitions import changes_resources
from slackwater.project.project import CodeDigests, load_project
from slackwater.steps.registry import registry
from tests.conftest import ROOT
from tests.infra.assembly import synthesised

pytestmark = pytest.mark.infra


def test_templates_and_assets_of_earlier_syntheses_are_removed_and_all_others_stay(tmp_path):
    documents = {
        "manifest.json": {
            "artifacts": {
                "late": {"properties": {"templateFile": "late.template.json"}},
                "late.assets": {"properties": {"file": "late.assets.json"}},
            }
        },
        "late.template.json": {},
        "removed.template.json": {},
        "late.assets.json": {"files": {"a": {"source": {"path": "asset.0"}}, "b": {"source": {"path": "asset.1.zip"}}}},
        "removed.assets.json": {"files": {"c": {"source": {"path": "asset.old"}}}},
        "tree.json": {},
    }
    for name, document in documents.items():
        (tmp_path / name).write_text(json.dumps(document))
    for name in ("asset.0", "asset.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "handler.py").touch()
    (tmp_path / "asset.1.zip").touch()
    remove_former(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*documents, "asset.0", "asset.1.zip"} - {"removed.template.json"}
    remove_uploaded(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == left - {"asset.1.zip"}


def test_definitions_that_are_deployed_without_the_cdk_change_nothing_but_the_deployed_project(tmp_path):
    """Every key of a source and of a pipeline that `changes_resources` leaves out."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "nyc_flights", folder, ignore=shutil.ignore_patterns("*.py"))
    scratch = tmp_path / "before", tmp_path / "after"
    for each in scratch:
        each.mkdir()
    before = synthesised(scratch[0], project=str(folder)).templates
    deployed = load_project(folder)
    deployed = deployed.model_copy(update={"code": CodeDigests(job="1", steps=dict.fromkeys(registry(), "1"))})
    edits = {
        "pipelines/daily_delays.yaml": {"max: 6000": "max: 5000", "dep_delay_p90: max": "dep_delay_p90: mean"},
        "sources/weather.yaml": {
            "description: Hourly": "description: The hourly",
            "field: time_hour": "{field: time_hour, timezone: UTC}",
            "temp: double": "temperature: double",
            'null_values: ["", NA]': 'null_values: ["", NA, none]\ntrim: true\nunknown_fields: reject',
        },
    }
    for name, changes in edits.items():
        text = (folder / name).read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (folder / name).write_text(text.replace("timestamp:\n  {", "timestamp: {"))
    changed = load_project(folder)
    assert not changes_resources(changed, deployed)
    assert changed != deployed
    after = synthesised(scratch[1], project=str(folder)).templates
    digest = re.compile("[0-9a-f]{64}")
    texts = [json.dumps(templates) for templates in (before, after)]
    assert unordered(json.loads(digest.sub("", texts[0]))) == unordered(json.loads(digest.sub("", texts[1])))
    # Only the asset with the project is another one.
    assert [len(set(digest.findall(one)) - set(digest.findall(other))) for one, other in (texts, texts[::-1])] == [1, 1]


def unordered(value: Any) -> Any:
    """Return a JSON value with its lists sorted: policies name assets in the order of their digests."""
    if isinstance(value, dict):
        return {key: unordered(item) for key, item in value.items()}
    return sorted(map(unordered, value), key=json.dumps) if isinstance(value, list) else value
