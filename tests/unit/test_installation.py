"""Where a clone and an installed wheel have what they deploy, and what they download."""

from __future__ import annotations

from pathlib import Path

import pytest

import slackwater
from slackwater.project import installation
from slackwater.project.installation import cache_folder, deployed_files, is_clone, library_folder

pytestmark = pytest.mark.unit


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """The deployed files of an installed wheel."""
    files = tmp_path / "site-packages" / "slackwater" / "_deployed"
    files.mkdir(parents=True)
    monkeypatch.setattr(installation, "__file__", str(files.parent / "project" / "installation.py"))
    return files


def test_a_clone_has_everything_in_itself(monkeypatch):
    monkeypatch.delenv("SLACKWATER_CACHE", raising=False)
    files = deployed_files()
    assert is_clone(files)
    assert (files / "infra" / "app.py").is_file()
    assert (library_folder(files) / "slackwater" / "__init__.py").samefile(slackwater.__file__)
    assert cache_folder(files) == files / ".slackwater"


def test_a_wheel_has_its_files_in_the_package(wheel):
    assert deployed_files() == wheel
    assert not is_clone(wheel)
    assert library_folder(wheel) == wheel.parents[1]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/slackwater"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/caches"}, "/caches/slackwater"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/caches", "SLACKWATER_CACHE": "/mine"}, "/mine"),
    ],
)
def test_the_cache_of_a_wheel_is_the_users(wheel, monkeypatch, variables, expected):
    for name in ("HOME", "XDG_CACHE_HOME", "SLACKWATER_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder(wheel) == Path(expected)
