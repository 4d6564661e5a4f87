"""Names of objects with rows: a batch keeps the names that its first attempt wrote."""

from __future__ import annotations

import json

import pytest

from slackwater.errors import DataError
from slackwater.receiver.push import receive
from slackwater.receiver.push.receive import Receipt, receipt_uri
from tests.before_named_rows import as_before
from tests.fakes_receiver import a_source
from tests.pushing import Setup, event

pytestmark = pytest.mark.unit

EVENTS = [event(), event("2013-03-08T13:00:00Z", id="b"), event("2013-03-08T13:10:00Z", id="b"), event(id="c")]


@pytest.mark.parametrize(("event_id", "rows"), [(None, (2, 2)), ("id", (2, 1))])
def test_a_receipt_has_the_rows_of_each_hour_without_repeated_ids(event_id, rows):
    setup = Setup(a_source(event_id=event_id))
    uri = receipt_uri("raw", "things", setup.push(EVENTS[::-1]).batch_id)
    assert Receipt.model_validate_json(setup.store.get(uri)).rows == rows
    assert tuple(int(uri[: -len(".parquet")].rpartition("-")[2]) for uri in setup.store.uris("/raw/source=")) == rows


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_batch_that_the_version_before_has_received_keeps_its_names(lost):
    """`lost` of its objects were not written before the version was replaced."""
    setup = Setup()
    setup.push(EVENTS)
    as_before(setup.store)
    written = dict(setup.store.objects)
    for uri in setup.store.uris("/raw/source=")[:lost]:
        del setup.store.objects[uri]
    result = setup.push(EVENTS)
    assert (result.accepted, result.duplicates) == (2 * lost, 4 - 2 * lost)
    assert setup.store.objects == written


def test_a_release_that_finds_other_repeated_ids_in_a_batch_writes_nothing(monkeypatch):
    """It would give the objects other names, and the events would be stored twice."""
    setup = Setup(a_source(event_id="id"))
    setup.push(EVENTS)
    before = dict(setup.store.objects)
    monkeypatch.setattr(receive, "drop_duplicates", lambda split, _: split)
    with pytest.raises(DataError, match="this release reads other events or hours"):
        setup.push(EVENTS)
    assert setup.store.objects == before


def test_a_receipt_says_whether_names_have_rows():
    setup = Setup()
    uri = receipt_uri("raw", "things", setup.push(EVENTS).batch_id)
    assert json.loads(setup.store.get(uri))["rows"] == [2, 2]
    as_before(setup.store)
    checked = setup.check(*EVENTS)
    assert checked.receipt.rows is None
