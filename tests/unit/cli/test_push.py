"""`slackwater push`: the totals that it prints."""

from __future__ import annotations

import pytest

from slackwater.cli.commands.push import print_push_totals
from slackwater.client.sender import PushTotals

pytestmark = pytest.mark.unit


def test_events_of_1970_are_noted(capsys):
    totals = PushTotals("visits")
    for first, last in (("1970-01-21", "1970-01-21"), ("1970-01-20", "1970-01-20")):
        totals.add([b"{}"] * 9, {"accepted": 9, "old_events": {"events": 2, "first": first, "last": last}})
    totals.add([b"{}"], {"accepted": 1})
    print_push_totals(totals)
    captured = capsys.readouterr()
    assert "4 events are of 1970-01-20 to 1970-01-21: more than 20 years old." in " ".join(captured.err.split())


def test_fields_that_the_definition_does_not_list_are_printed(capsys):
    print_push_totals(PushTotals("visits", batches=1, accepted=2, unknown_fields=["triage", "insurance"]))
    captured = capsys.readouterr()
    assert " ".join((captured.out + captured.err).split()) == (
        "visits: 2 accepted, 0 duplicates, 0 rejected, in 1 batch fields that sources/visits.yaml does not list: "
        "triage, insurance (their values are in the column _extra: to use one, add it to `fields`)"
    )
