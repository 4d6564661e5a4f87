"""`slackwater push`: the totals that it prints."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from slackwater.cli.commands.push import print_push_totals
from slackwater.client.sender import PushTotals
from slackwater.errors import DataError
from tests.example_project import PROJECT
from tests.fakes_cli import use_client

pytestmark = pytest.mark.unit


def test_events_of_1970_are_noted(capsys):
    totals = PushTotals("visits")
    for first, last in (("1970-01-21", "1970-01-21"), ("1970-01-20", "1970-01-20")):
        totals.add([b"{}"] * 9, {"accepted": 9, "old_events": {"events": 2, "first": first, "last": last}})
    totals.add([b"{}"], {"accepted": 1})
    print_push_totals(totals)
    captured = capsys.readouterr()
    assert "4 events are of 1970-01-20 to 1970-01-21: more than 20 years old." in " ".join(captured.err.split())


def test_what_is_stored_is_printed_before_the_error_of_the_report(monkeypatch, printed_by, tmp_path):
    file = tmp_path / "weather.ndjson"
    file.write_text("{}\n{}\n")

    def push(source, events, *, on_progress, **_):
        on_progress(PushTotals(source, events=2, batches=1, accepted=1, rejected=[{"index": 1, "reason": "too old"}]))
        raise DataError("the API answered 400: counts: ...")

    use_client(monkeypatch, SimpleNamespace(push=push))
    shown = printed_by("push", "weather", str(file), "--counts", *PROJECT, code=2)
    assert shown.out == "weather: 1 accepted, 0 duplicates, 1 rejected, in 1 batch\n"
    assert shown.err.index("event 1: too old") < shown.err.index("error: the API answered 400: counts: ...")


def test_events_that_are_not_in_the_report_are_named(capsys):
    report = {"report_id": "r", "windows": 1, "events": 1, "through": "2026-11-28T11:00:00+00:00"}
    totals = PushTotals("visits", batches=1, accepted=1, report=report, not_reported={"1970-01-21T18:00Z": 1})
    print_push_totals(totals)
    shown = capsys.readouterr()
    assert "reported: 1 event sent" in shown.out
    assert "not in the report: 1 event of 1970-01-21T18:00Z, because" in shown.err


def test_fields_that_the_definition_does_not_list_are_printed(capsys):
    print_push_totals(PushTotals("visits", batches=1, accepted=2, unknown_fields=["triage", "insurance"]))
    captured = capsys.readouterr()
    assert " ".join((captured.out + captured.err).split()) == (
        "visits: 2 accepted, 0 duplicates, 0 rejected, in 1 batch fields that sources/visits.yaml does not list: "
        "triage, insurance (their values are in the column _extra: to use one, add it to `fields`)"
    )
