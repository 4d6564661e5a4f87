"""The jars that a job of the local cloud gets."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from slackwater.errors import CloudError, InputError
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


@pytest.fixture
def cached(tmp_path, fetched, monkeypatch):
    """A cache with the downloaded jars."""
    cache = tmp_path / "cache"
    (cache / "downloads").mkdir(parents=True)
    for jar in fetched.glob("*.jar"):
        jar.rename(cache / "downloads" / jar.name)
    monkeypatch.setenv("SLACKWATER_CACHE", str(cache))
    return cache


def test_a_project_gets_the_jars_of_the_cache(tmp_path, cached):
    folder = tmp_path / "project" / "jars"
    assert not jars.is_complete(folder)
    assert [jar.read_bytes() for jar in jars.fetch(folder)] == [b"a.jar", b"b.jar"]
    assert jars.is_complete(folder)
    assert (folder / "spark" / "bin" / "spark-submit").is_file()
    shutil.rmtree(cached)  # a cache may be emptied at any time
    assert [jar.read_bytes() for jar in jars.fetch(folder)] == [b"a.jar", b"b.jar"]


def test_jars_of_other_versions_are_replaced(tmp_path, cached, monkeypatch):
    folder = tmp_path / "project" / "jars"
    jars.fetch(folder)
    (cached / "downloads" / "c.jar").write_bytes(b"c.jar")
    monkeypatch.setattr(jars, "_JARS", {"c.jar": "any"})
    monkeypatch.setattr(jars, "ARTEFACTS", ("c:c:2",))
    assert [jar.name for jar in jars.fetch(folder)] == ["c.jar"]


@pytest.mark.parametrize(
    ("java", "problem"),
    [
        (None, "and there is no .*bin/java: put it on the PATH, or set JAVA_HOME"),
        ('openjdk version "11.0.2" 2019-01-15', "and .*bin/java is Java 11"),
        ('java version "1.8.0_402"', "and .*bin/java is Java 1"),
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "25" 2025-09-16', None),
    ],
)
def test_java_17_or_newer_is_needed(tmp_path, monkeypatch, java, problem):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if java:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\necho '{java}' >&2\n")
        (tmp_path / "bin" / "java").chmod(0o755)
    if problem:
        with pytest.raises(InputError, match=f"Spark needs Java 17 or newer, {problem}"):
            jars.check_java()
    else:
        jars.check_java()
