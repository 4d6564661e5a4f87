"""Given-up files whose next attempt is interrupted or fails."""

from __future__ import annotations

import pytest

from slackwater.receiver.pull.file_cache import FileState
from slackwater.receiver.pull.give_up import give_up
from tests.fakes_crashes import Process, WriteFault
from tests.fakes_receiver import Crash
from tests.pulling import FIRST, SECOND, Setup, csv_of, row

pytestmark = pytest.mark.unit


@pytest.fixture
def setup():
    """Pulled files: one is stored, the other one was broken at the partner, and a person has given it up."""
    setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("b"))})
    setup.partner.broken = {SECOND}
    setup.pull()
    give_up("things", [SECOND], reason=None, cache=setup.cache, now=setup.clock())
    return setup


@pytest.mark.parametrize("write", range(1, 7))
@pytest.mark.parametrize("fault_type", ["ends before", "ends after"])
def test_a_file_that_the_partner_corrects_after_it_was_given_up_is_stored_although_a_pull_is_killed(
    setup, write, fault_type
):
    setup.partner.broken, setup.partner.files[SECOND] = set(), csv_of(row("corrected"))
    setup.pull(using=Process(WriteFault(write, fault_type)).using)
    for _ in range(3):
        setup.clock.pass_by(days=1)
        setup.pull()
    assert setup.ids() == ["a", "corrected"]


def test_a_file_stays_given_up_when_its_leftovers_cannot_be_deleted_yet():
    setup = Setup({FIRST: csv_of(row("a"))})
    setup.pull(using=Process(WriteFault(5, "ends after")).using)
    assert setup.store.uris("/raw/source=")
    setup.partner.broken = {FIRST}
    setup.clock.pass_by(days=4)
    give_up("things", [FIRST], reason="the partner lost it", cache=setup.cache, now=setup.clock())
    delete, setup.store.delete = setup.store.delete, lambda _: (_ for _ in ()).throw(Crash("S3 is down"))
    setup.pull()
    with pytest.raises(Crash, match="S3 is down"):
        setup.remove_stale()
    setup.store.delete = delete
    entry = setup.entry(FIRST)
    assert (entry.state, entry.reason) == (FileState.GIVEN_UP, "the partner lost it")
    assert setup.plan().oldest_not_taken is None
    setup.clock.pass_by(days=1)
    setup.pull()
    setup.remove_stale()
    assert setup.store.uris("/raw/source=") == []
    assert not setup.entry(FIRST).is_unfinished
