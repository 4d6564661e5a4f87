"""The jars that a job of the local cloud gets."""

from __future__ import annotations

import hashlib

import pytest

from slackwater.errors import CloudError
from slackwater.local import jars

pytestmark = pytest.mark.unit


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    pinned = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a.jar", "b.jar")}
    monkeypatch.setattr(jars, "_JARS", pinned)
    for name in pinned:
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_the_jars_that_are_pinned_are_accepted(fetched):
    jars.check_jars(fetched.iterdir())


def test_a_jar_with_another_content_is_refused(fetched):
    (fetched / "b.jar").write_bytes(b"other")
    with pytest.raises(CloudError, match=r"not the expected jars: b\.jar\. "):
        jars.check_jars(fetched.iterdir())


def test_a_missing_and_an_additional_jar_are_refused(fetched):
    (fetched / "b.jar").rename(fetched / "c.jar")
    with pytest.raises(CloudError, match=r"not the expected jars: b\.jar, c\.jar\. "):
        jars.check_jars(fetched.iterdir())
