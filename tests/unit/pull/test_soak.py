"""A few days of the soak: `make soak` runs a year."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.receiver.pull.file_cache import Content
from slackwater.receiver.pull.stale_objects import Removal, StaleObjects
from slackwater.receiver.writing.raw_writer import RawWriter
from tests.soak.run import soak

pytestmark = pytest.mark.unit


def test_every_event_of_some_days_is_stored_duplicate_or_rejected_once():
    figures = soak(days=2, seed=5, interval=timedelta(minutes=45))
    account = figures["account"]
    assert account["sent"] == account["stored"] + account["duplicates"] + account["rejected"] > 100
    assert account["rejected"]
    assert account["duplicates"]
    assert figures["happened"]["definition changed"]
    assert figures["happened"]["file failed"]


def test_a_year_depends_on_its_seed_only():
    first, second, third = (soak(days=1, seed=seed, interval=timedelta(minutes=120)) for seed in (1, 1, 2))
    assert [first[name] for name in ("partner", "happened")] == [second[name] for name in ("partner", "happened")]
    assert first["partner"] != third["partner"]


def test_the_account_notices_a_content_that_is_never_deleted(monkeypatch):
    monkeypatch.setattr(StaleObjects, "remove", lambda *_, **__: Removal())
    with pytest.raises(AssertionError, match="left over"):
        soak(days=1, seed=1, interval=timedelta(minutes=60))


def test_the_account_notices_lost_rows(monkeypatch):
    write = RawWriter.write_files

    def lose_one(self, source, files, *, origin):
        write(self, source, files[1:] if len(files) > 1 else files, origin=origin)

    monkeypatch.setattr(RawWriter, "write_files", lose_one)
    with pytest.raises(AssertionError, match="missing"):
        soak(days=1, seed=1, interval=timedelta(minutes=15))


def test_the_account_notices_rows_of_a_replaced_content(monkeypatch):
    monkeypatch.setattr(Content, "without_file", lambda content, path, **_: content)
    with pytest.raises(AssertionError):
        soak(days=1, seed=1, interval=timedelta(minutes=15))
