"""Contents that local clouds unpack once, also when several processes do it at the same time."""

from __future__ import annotations

import os
import time

import pytest

from slackwater.local.unpacked import Unpacked
from slackwater.project.installation import remove_unused_folders

pytestmark = pytest.mark.unit

DAY = 86_400


@pytest.fixture
def unpacked(tmp_path):
    return Unpacked(tmp_path / "unpacked")


def write(text):
    return lambda folder: (folder / "file").write_text(text)


def test_a_content_is_unpacked_once(unpacked):
    assert unpacked.find("a") is None
    folder = unpacked.add("a", write("first"))
    assert unpacked.find("a") == unpacked.add("a", write("second")) == folder
    assert (folder / "file").read_text() == "first"


def test_a_content_that_cannot_be_unpacked_is_not_found(unpacked):
    def fail(folder):
        (folder / "file").write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        unpacked.add("a", fail)
    assert list(unpacked.folder.iterdir()) == []


def test_a_content_that_another_process_unpacks_meanwhile_is_taken(unpacked):
    def unpack(folder):
        (folder / "file").write_text("own")
        Unpacked(unpacked.folder).add("a", write("other"))

    assert (unpacked.add("a", unpack) / "file").read_text() == "other"
    assert [path.name for path in unpacked.folder.iterdir()] == ["a"]


def test_contents_that_nobody_has_looked_for_in_seven_days_are_removed(unpacked):
    for name in ("used", "unused", "partial-of-a-killed-process"):
        os.utime(unpacked.add(name, write(name)), (0, time.time() - 8 * DAY))
    unpacked.find("used")
    unpacked.add("new", write("new"))
    remove_unused_folders(unpacked.folder)
    assert sorted(path.name for path in unpacked.folder.iterdir()) == ["new", "used"]
