"""`slackwater sideline`: rejected events are counted and printed."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from slackwater.cli.commands.sideline import read_days
from slackwater.cli.main import run
from slackwater.client.days.rejected_rows import RejectedRow
from slackwater.receiver.parsing.rejections import RejectionRule
from slackwater.receiver.pull.rejects_reader import RejectsReader
from slackwater.receiver.writing.redrives import FailedAgain, Redrive, record_uri, stored_uri
from slackwater.receiver.writing.rejects import rejects_uri
from slackwater.storage import StoredObject
from tests.example_project import PROJECT
from tests.fakes_cli import Terminal, use_client
from tests.fakes_receiver import MemoryFileCache, MemoryStore, a_source

pytestmark = pytest.mark.unit

TODAY = datetime(2013, 3, 12, 9, 30, tzinfo=UTC)
PUSHED, PULLED = "1" * 32, "2" * 32


class Store(MemoryStore):
    """Objects, each a minute younger than the one written before it."""

    def list(self, prefix):
        order = list(self.objects)
        for item in super().list(prefix):
            yield StoredObject(*item[:3], TODAY + timedelta(minutes=order.index(item.uri)))


def record(index, rule=RejectionRule.MISSING, *, batch=PUSHED, origin="push:acme", text='{"temp": "x"}', **more):
    reason = "temp: a number is expected"
    return {"index": index, "reason": reason, "rule": rule, "batch_id": batch, "origin": origin, "text": text, **more}


def day(back: int) -> datetime:
    return TODAY - timedelta(days=back)


def iso(back: int) -> str:
    return day(back).date().isoformat()


@pytest.fixture
def store(monkeypatch):
    store = Store()
    use_client(
        monkeypatch, SimpleNamespace(rejects=RejectsReader(store=store, files=MemoryFileCache(), raw_bucket="raw"))
    )
    monkeypatch.setattr("slackwater.cli.commands.sideline._today", TODAY.date)
    return store


@pytest.fixture
def store_rejects(store):
    """Store rejected events as the receiver does."""

    def store_rejects(*records, source="weather", back=0):
        uri = rejects_uri("raw", source, received_at=day(back), batch_id=records[0]["batch_id"])
        store.put(uri, "".join(f"{json.dumps(record)}\n" for record in records).encode())

    return store_rejects


class TestList:
    def test_events_are_counted_by_day_source_and_rule_the_latest_day_first(
        self, printed_by, document_of, store_rejects
    ):
        store_rejects(record(0), record(3, RejectionRule.WRONG_TYPE), record(4))
        store_rejects(record(0, RejectionRule.TOO_OLD, batch=PULLED))
        store_rejects(record(0), source="flights", back=0)
        store_rejects(record(7), back=2)
        days = document_of("sideline", "list", *PROJECT)["days"]
        assert [day.pop("sent_again") for day in days] == [{}, {}, {}]
        assert {rule: event["index"] for rule, event in days[1].pop("examples").items()} == {
            "missing": 0,
            "wrong_type": 3,
            "too_old": 0,
        }
        assert [list(days[number].pop("examples")) for number in (0, 2)] == [["missing"], ["missing"]]
        assert days == [
            {"source": "flights", "date": iso(0), "rejected": 1, "batches": 1, "rules": {"missing": 1}},
            {
                "source": "weather",
                "date": iso(0),
                "rejected": 4,
                "batches": 2,
                "rules": {"missing": 2, "wrong_type": 1, "too_old": 1},
            },
            {"source": "weather", "date": iso(2), "rejected": 1, "batches": 1, "rules": {"missing": 1}},
        ]
        assert printed_by("sideline", "list", "weather", *PROJECT).out.splitlines() == [
            "date (UTC)  source   rejected  batches  by rule",
            f"{iso(0)}  weather         4        2  missing 2, wrong_type 1, too_old 1",
            f"{iso(2)}  weather         1        1  missing 1",
            "",
            "date (UTC)  rule        rejected  sent again  first reason                first event",
            f'{iso(0)}  missing            2           0  temp: a number is expected  {{"temp": "x"}}',
            f'{iso(0)}  wrong_type         1           0  temp: a number is expected  {{"temp": "x"}}',
            f'{iso(0)}  too_old            1           0  temp: a number is expected  {{"temp": "x"}}',
            f'{iso(2)}  missing            1           0  temp: a number is expected  {{"temp": "x"}}',
        ]
        by_rule = printed_by("sideline", "weather", "--date", iso(2), *PROJECT).out.splitlines()[-1]
        assert by_rule == f'{iso(2)}  missing         1           0  temp: a number is expected  {{"temp": "x"}}'

    def test_the_default_is_the_last_seven_days(self, document_of, store_rejects):
        for back in (0, 6, 7):
            store_rejects(record(0), back=back)

        def dates(*arguments):
            return [day["date"] for day in document_of("sideline", "list", "weather", *arguments, *PROJECT)["days"]]

        assert dates() == [iso(0), iso(6)]
        assert dates("--since", iso(7)) == [iso(0), iso(6), iso(7)]
        assert dates("--since", iso(0)) == [iso(0)]
        assert dates("--date", iso(7)) == [iso(7)]

    def test_no_rejected_events(self, printed_by, document_of, store):
        assert document_of("sideline", "list", *PROJECT) == {"days": []}
        assert printed_by("sideline", "list", *PROJECT).out == f"no rejected events since {iso(6)}\n"
        shown = printed_by("sideline", "list", "weather", "--date", "2013-03-08", *PROJECT).out
        assert shown == "no rejected events of weather on 2013-03-08\n"


def store_redrive(store, number, *, accepted=(), failed=(), is_stored=True):
    """Store a record of events that were sent again, as the function does."""
    failed = tuple(FailedAgain(index, RejectionRule.MISSING, "wind: it is required") for index in failed)
    record = Redrive(sent_at=TODAY, definition=a_source(), events_digest="x", accepted=tuple(accepted), failed=failed)
    uri = record_uri("raw", "weather", iso(0), PUSHED, number)
    store.put(uri, record.model_dump_json(by_alias=True).encode())
    if is_stored:
        store.put(stored_uri(uri), b"")


class TestSentAgain:
    def test_what_is_stored_since_is_left_out_and_the_rest_has_both_reasons(
        self, printed_by, document_of, store_rejects, store
    ):
        store_rejects(*(record(index, RejectionRule.WRONG_TYPE) for index in range(4)))
        store_redrive(store, 0, accepted=[0], failed=[1, 2])
        store_redrive(store, 1, failed=[2])
        store_redrive(store, 2, accepted=[1], is_stored=False)
        (day,) = document_of("sideline", "weather", *PROJECT)["days"]
        assert (day["rejected"], day["rules"], day["sent_again"]) == (
            3,
            {"missing": 2, "wrong_type": 1},
            {"missing": 2},
        )
        events = document_of("sideline", "show", "weather", *PROJECT)["events"]
        assert [(event["index"], event["sent_again"], event.get("newest_rule")) for event in events] == [
            (1, 2, "missing"),
            (2, 2, "missing"),
            (3, 0, None),
        ]
        lines = printed_by("sideline", "show", "weather", *PROJECT).out.splitlines()[2:]
        again = "wind: it is required (first wrong_type: temp: a number is expected)"
        assert [line.split(maxsplit=2) for line in lines] == [
            ["1", "missing", f'{again}  {{"temp": "x"}}'],
            ["2", "missing", f'{again}  {{"temp": "x"}}'],
            ["3", "wrong_type", f'temp: a number is expected{" " * 43}{{"temp": "x"}}'],
        ]

    def test_a_batch_of_which_all_events_are_stored_does_not_count(self, document_of, store_rejects, store):
        store_rejects(record(0))
        store_redrive(store, 0, accepted=[0])
        assert document_of("sideline", "list", "weather", *PROJECT) == {"days": []}
        assert document_of("sideline", "show", "weather", "--batch", PUSHED, *PROJECT)["events"] == []


class TestShow:
    def test_records_are_complete_and_the_latest_batch_is_first(self, document_of, store_rejects):
        store_rejects(record(0, text="x" * 500), record(3, line=4))
        store_rejects(record(2, RejectionRule.WRONG_TYPE, batch=PULLED, origin="pull:a.csv", line=3))
        store_rejects(record(1, batch="3" * 32), back=1)
        document = document_of("sideline", "show", "weather", *PROJECT)
        assert (document["source"], document["more"]) == ("weather", False)
        events = document["events"]
        assert [(one["date"], one["batch_id"], one["index"]) for one in events] == [
            (iso(0), PULLED, 2),
            (iso(0), PUSHED, 0),
            (iso(0), PUSHED, 3),
            (iso(1), "3" * 32, 1),
        ]
        assert events[0] == {
            "date": iso(0),
            "index": 2,
            "line": 3,
            "reason": "temp: a number is expected",
            "rule": "wrong_type",
            "batch_id": PULLED,
            "origin": "pull:a.csv",
            "text": '{"temp": "x"}',
            "rows": 1,
            "sent_again": 0,
        }
        assert events[1]["text"] == "x" * 500
        assert events[1]["line"] is None

    def test_a_batch_of_any_day_or_a_day_is_shown_and_no_other(self, document_of, store_rejects):
        store_rejects(record(0), back=400)
        store_rejects(record(0, batch=PULLED))
        for option in (["--batch", PUSHED], ["--date", iso(400)]):
            [event] = document_of("sideline", "show", "weather", *option, *PROJECT)["events"]
            assert (event["date"], event["batch_id"]) == (iso(400), PUSHED)

    def test_events_beyond_the_limit_are_reported_as_more(self, capsys, document_of, store_rejects):
        store_rejects(*map(record, range(3)))
        assert [document_of("sideline", "show", "weather", "--limit", str(n), *PROJECT)["more"] for n in (2, 3, 4)] == [
            True,
            False,
            False,
        ]
        assert run(["sideline", "show", "weather", "--limit", "2", *PROJECT]) == 0
        assert capsys.readouterr().err == "these are the first 2 events (to see more: --limit N)\n"

    def test_only_a_terminal_has_a_limit_without_the_option(self, monkeypatch, printed_by, document_of, store_rejects):
        store_rejects(*map(record, range(25)))
        document = document_of("sideline", "show", "weather", *PROJECT)
        assert (len(document["events"]), document["more"]) == (25, False)
        assert "25 events of batch" in printed_by("sideline", "show", "weather", *PROJECT).out
        for as_json, shown in ((["--json"], '"index": 24'), ([], "20 events of batch")):
            monkeypatch.setattr(sys, "stdout", Terminal())
            assert run(["sideline", "show", "weather", *as_json, *PROJECT]) == 0
            assert shown in sys.stdout.getvalue()

    def test_each_batch_is_printed_as_a_table(self, printed_by, store_rejects):
        store_rejects(record(0), record(12, RejectionRule.WRONG_TYPE, line=13, text="a\x1b[2J\nb"))
        assert printed_by("sideline", "show", "weather", *PROJECT).out.splitlines() == [
            f"weather {iso(0)}: 2 events of batch {PUSHED}, push:acme",
            "index  line  rule        reason                      event",
            '    0        missing     temp: a number is expected  {"temp": "x"}',
            "   12    13  wrong_type  temp: a number is expected  a\\x1b[2J\\nb",
        ]

    def test_the_rows_of_a_file_that_was_rejected_as_a_whole_are_counted(self, capsys, document_of, store_rejects):
        store_rejects(record(0, batch=PULLED, line=2), record(1, batch=PULLED, line=3, rows=99_999))
        (day,) = document_of("sideline", "list", *PROJECT)["days"]
        assert (day["rejected"], day["batches"], day["rules"]) == (100_000, 1, {"missing": 100_000})
        assert [event["rows"] for event in document_of("sideline", "show", "weather", *PROJECT)["events"]] == [
            1,
            99_999,
        ]
        assert run(["sideline", "show", "weather", *PROJECT]) == 0
        assert capsys.readouterr().err == "and 99,998 rows more: the file was rejected as a whole\n"

    def test_long_events_are_truncated_on_a_terminal(self, monkeypatch, store_rejects):
        store_rejects(record(0, text="0123456789" * 7))
        monkeypatch.setattr(sys, "stdout", Terminal())
        monkeypatch.setenv("COLUMNS", "140")
        assert run(["sideline", "show", "weather", *PROJECT]) == 0
        shown = sys.stdout.getvalue()
        assert f"{'0123456789' * 5}0123456..." in shown

    def test_records_without_a_rule_are_shown(self, document_of, store):
        old = {"index": 0, "reason": "id: missing", "batch_id": PUSHED, "origin": "push:acme", "text": "{}"}
        uri = rejects_uri("raw", "weather", received_at=TODAY, batch_id=PUSHED)
        store.put(uri, f"{json.dumps(old)}\n".encode())
        assert document_of("sideline", "list", "weather", *PROJECT)["days"][0]["rules"] == {"unknown": 1}
        assert document_of("sideline", "show", "weather", *PROJECT)["events"][0]["rule"] == "unknown"

    def test_an_event_with_any_type_of_line_break_is_one_record(self, document_of, store_rejects):
        odd = "a\nb\rc\u2028d\u0085e\x0bf\x1cg"
        store_rejects(record(0, text=odd), record(1))
        events = document_of("sideline", "show", "weather", *PROJECT)["events"]
        assert [event["text"] for event in events] == [odd, '{"temp": "x"}']

    def test_an_object_without_rejected_events_is_named(self, capsys, store):
        uri = rejects_uri("raw", "weather", received_at=TODAY, batch_id=PUSHED)
        store.put(uri, b"hello\n")
        assert run(["sideline", "show", "weather", *PROJECT]) == 2
        assert f"error: {uri}: line 1 is not a rejected event: " in capsys.readouterr().err

    def test_no_rejected_events(self, printed_by, document_of, store):
        assert document_of("sideline", "show", "weather", *PROJECT) == {
            "source": "weather",
            "events": [],
            "more": False,
        }
        assert (
            printed_by("sideline", "show", "weather", *PROJECT).out == f"no rejected events of weather since {iso(6)}\n"
        )
        shown = printed_by("sideline", "show", "weather", "--batch", PUSHED, *PROJECT).out
        assert shown == f"no rejected events of weather in batch {PUSHED}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list", "tides"], "no source 'tides' in this project"),
        (["show", "tides"], "no source 'tides' in this project"),
        (["list", "--since", "9999-12-31"], "--since: 9999-12-31 has not begun in UTC"),
        (["list", "--date", "2013-03-08", "--since", "2013-03-08"], "--date and --since: give one of them"),
        (["show", "weather", "--date", "2013-03-08", "--batch", PUSHED], "--date and --batch: give one of them"),
        (["show", "weather", "--limit", "0"], "Invalid value for '--limit'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options_are_an_input_error(printed_by, store, arguments, expected):
    assert expected in printed_by("sideline", *arguments, *PROJECT, code=2).err


def test_days_are_utc_days():
    before, days, after = datetime.now(UTC).date(), read_days(None, None), datetime.now(UTC).date()
    assert len(days) == 7
    assert days[0] in {before.isoformat(), after.isoformat()}


class TestPipeline:
    ROWS = (
        RejectedRow("daily_delays", "2013-03-10", 2, "checked", "range", "distance: less than 1", {"distance": -1}),
        RejectedRow("daily_delays", "2013-03-10", 2, "checked", "range", "distance: less than 1", {"distance": -2}),
        RejectedRow("daily_delays", "2013-03-10", 2, "checked", "not_null", "carrier: no value", {"carrier": None}),
    )

    @pytest.fixture(autouse=True)
    def rows(self, monkeypatch):
        use_client(monkeypatch, SimpleNamespace(rejected_rows=lambda pipeline, date: iter(self.ROWS)))

    def test_rows_of_the_published_run_are_counted_by_step_and_rule(self, printed_by, document_of):
        arguments = ("sideline", "daily_delays", "--date", "2013-03-10")
        document = document_of(*arguments, *PROJECT)
        assert (document["pipeline"], document["date"], document["attempt"]) == ("daily_delays", "2013-03-10", 2)
        assert document["rules"] == [
            {
                "step": "checked",
                "rule": "range",
                "reason": "distance: less than 1",
                "rejected": 2,
                "example": {"distance": -1},
            },
            {
                "step": "checked",
                "rule": "not_null",
                "reason": "carrier: no value",
                "rejected": 1,
                "example": {"carrier": None},
            },
        ]
        assert printed_by(*arguments, *PROJECT).out.splitlines() == [
            "daily_delays 2013-03-10, attempt 2: 3 rows rejected",
            "step     rule      reason                 rejected  first row",
            'checked  range     distance: less than 1         2  {"distance": -1}',
            'checked  not_null  carrier: no value             1  {"carrier": null}',
        ]

    def test_a_day_without_rejected_rows(self, printed_by, monkeypatch):
        use_client(monkeypatch, SimpleNamespace(rejected_rows=lambda pipeline, date: iter(())))
        shown = printed_by("sideline", "daily_delays", "--date", "2013-03-10", *PROJECT).out
        assert shown == "the published run of daily_delays 2013-03-10 has rejected no rows\n"

    def test_rows_of_an_hour(self, document_of, printed_by, monkeypatch):
        row = RejectedRow("daily_delays", "2013-03-10T15", 1, "checked", "range", "distance: less than 1", {})
        asked = []
        client = SimpleNamespace(rejected_rows=lambda *run: asked.append(run) or iter([row]))
        use_client(monkeypatch, client)
        assert document_of("sideline", "daily_delays", "--date", "2013-03-10T15", *PROJECT)["date"] == "2013-03-10T15"
        assert asked == [("daily_delays", "2013-03-10T15")]
        shown = printed_by("sideline", "weather", "--date", "2013-03-10T15", *PROJECT, code=2).err
        assert "--date: '2013-03-10T15' is not a date such as 2013-03-08" in shown

    def test_a_pipeline_needs_a_date(self, printed_by):
        shown = printed_by("sideline", "daily_delays", *PROJECT, code=2).err
        assert "--date: daily_delays is a pipeline: give the day whose published run has rejected rows" in shown
