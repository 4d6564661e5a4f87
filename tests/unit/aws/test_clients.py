"""Clients are made for the region of the environment."""

from __future__ import annotations

import pytest

from slackwater.aws.clients import client
from slackwater.errors import InputError

pytestmark = pytest.mark.unit


def test_without_a_region_the_error_names_both_remedies(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"AWS_REGION.*slackwater local up"):
        client("dynamodb")
