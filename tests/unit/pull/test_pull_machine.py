"""The pull's state machine, and the two functions that it calls."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import jsonata
import pytest

from examples.nyc_flights import feed
from examples.nyc_flights.partner import PartnerServer
from lambdas import fetch_file, list_files
from slackwater.errors import DataError, FileTooLarge, UnknownName
from slackwater.pipeline.retries import with_retries
from slackwater.project.project import Project
from slackwater.receiver.pull import large_files
from slackwater.receiver.pull.plan import MAX_ITEMS
from slackwater.receiver.pull.removed_files import read_doubtful
from slackwater.receiver.writing.raw_writer import RawWriter
from tests.example_project import example_project
from tests.execution_events import ENDS, HISTORY_LIMIT, most_events
from tests.fakes_functions import use_resources
from tests.fakes_receiver import MemoryEventCounts, MemoryFileCache, MemoryStore
from tests.fakes_state import MemoryState

pytestmark = pytest.mark.unit

MACHINE = with_retries(json.loads(Path("step_functions/pull_source.asl.json").read_text()))
STATES = MACHINE["States"]
DAYS = ("2013-03-08", "2013-03-09", "2013-03-10")


def evaluate(template: str, states: dict[str, object], **variables: object) -> object:
    expression = jsonata.Jsonata(template.removeprefix("{%").removesuffix("%}"))
    for name, value in {"states": states, **variables}.items():
        expression.assign(name, value)
    return expression.evaluate(None)


def totals(*results: dict[str, object], **listing: int) -> dict[str, object]:
    counts = {
        "files": len(results),
        "listed": len(results),
        "unchanged": 0,
        "busy": 0,
        "waiting": 0,
        "removed": 0,
        "doubtful": 0,
        "left": 0,
        **listing,
    }
    variables = {"source": "s", "correlation_id": "c", "listing": counts}
    output = STATES["Fetch the files"]["Output"]
    return {name: evaluate(template, {"result": list(results)}, **variables) for name, template in output.items()}


def fetched(state: str, path: str = "f", **counts: object) -> dict[str, object]:
    result = {
        "path": path,
        "state": state,
        "rows": 0,
        "rejected": 0,
        "bytes": 0,
        "reason": "",
        "note": "",
        "new_columns": [],
    }
    return {**result, **counts}


class TestMachine:
    def test_the_machine_uses_jsonata_and_two_functions(self):
        assert MACHINE["QueryLanguage"] == "JSONata"
        assert MACHINE["Comment"]
        fetch = STATES["Fetch the files"]["ItemProcessor"]["States"]["Fetch one file"]
        names = [task["Arguments"]["FunctionName"] for task in (STATES["List files"], fetch)]
        assert names == ["${ListFilesFunction}", "${FetchFileFunction}"]
        for task in (STATES["List files"], fetch):
            assert [set(retry["ErrorEquals"]) for retry in task["Retry"][-1:]] == [
                {
                    "Lambda.TooManyRequestsException",
                    "Lambda.ServiceException",
                    "Lambda.AWSLambdaException",
                    "Lambda.SdkClientException",
                    "Lambda.ClientExecutionTimeoutException",
                    "Lambda.Unknown",
                    "Runtime.ExitError",
                    "Throttled",
                    "Unavailable",
                    "DayChanged",
                }
            ]
        assert [retry["MaxAttempts"] for retry in fetch["Retry"][:-1]] == [0]

    @pytest.mark.parametrize(("files", "indexes"), [(0, []), (1, [0]), (3, [0, 1, 2])])
    def test_the_map_has_one_item_per_file(self, files, indexes):
        assert evaluate(STATES["Fetch the files"]["Items"], {}, listing={"files": files}) == indexes

    def test_totals_of_no_files_are_zero(self):
        assert totals(listed=9, unchanged=3, busy=1, waiting=4, removed=2, doubtful=1, left=5) == {
            "source": "s",
            "listed": 9,
            "stored": 0,
            "unchanged": 3,
            "duplicate": 0,
            "vanished": 0,
            "busy": 1,
            "waiting": 4,
            "removed": 2,
            "doubtful": 1,
            "left": 5,
            "returned": 0,
            "unmatched": 0,
            "unmatched_files": [],
            "reports": 0,
            "refused_reports": [],
            "failed": 0,
            "rows": 0,
            "rejected": 0,
            "bytes": 0,
            "empty": 0,
            "vanished_files": [],
            "new_columns": [],
            "noted": 0,
            "notes": [],
            "first_reason": "",
            "correlation_id": "c",
        }

    def test_totals_have_the_files_that_have_returned(self):
        assert totals(returned=2)["returned"] == 2

    def test_totals_have_the_files_that_match_no_pattern(self):
        result = totals(unmatched=4, unmatched_files=["a", "b", "c"])
        assert (result["unmatched"], result["unmatched_files"]) == (4, ["a", "b", "c"])
        assert totals(unmatched=1, unmatched_files=["a"])["unmatched_files"] == ["a"]

    def test_totals_have_the_files_with_counts(self):
        result = totals(reports=2, refused_reports=["a.json: not JSON"])
        assert (result["reports"], result["refused_reports"]) == (2, ["a.json: not JSON"])
        assert totals(reports=0, refused_reports=[])["refused_reports"] == []

    def test_totals_of_one_file_are_its_counts(self):
        result = totals(fetched("stored", rows=5, rejected=1, bytes=70))
        assert [result[name] for name in ("stored", "rows", "rejected", "bytes")] == [1, 5, 1, 70]

    def test_totals_of_many_files_are_sums(self):
        failures = [{"state": "failed", "reason": f"reason {n}"} for n in range(2)]
        vanished = [fetched("vanished", f"v{n}") for n in range(7)]
        others = [fetched("stored", rows=1), fetched("stored", rows=2), fetched("duplicate"), fetched("busy")]
        result = totals(*failures, *vanished, *others, fetched("unchanged"), unchanged=2)
        counts = [result[name] for name in ("stored", "duplicate", "busy", "unchanged", "vanished", "failed", "rows")]
        assert counts == [2, 1, 1, 3, 7, 2, 3]
        assert result["vanished_files"] == ["v0", "v1", "v2", "v3", "v4"]
        assert result["first_reason"] == "reason 0"
        cause = evaluate(STATES["Fail the pull"]["Cause"], {"input": result}, source="s", listing={"files": 14})
        assert cause == (
            "2 of 14 files of s could not be fetched (2 were stored); the first error: reason 0 "
            "(all: slackwater files list s --state failed)"
        )
        assert evaluate(STATES["Check whether any file failed"]["Choices"][0]["Condition"], {"input": result}) is True

    def next_state(self, result: dict[str, object]) -> str:
        check = STATES["Check whether any file failed"]
        choices = (choice for choice in check["Choices"] if evaluate(choice["Condition"], {"input": result}))
        return next((choice["Next"] for choice in choices), check["Default"])

    def test_a_pull_whose_files_have_rejected_events_only_fails_with_the_first_reason(self):
        results = [fetched("unchanged"), fetched("stored", rejected=2, reason="no 'x'"), fetched("stored", rejected=3)]
        result = totals(*results)
        assert self.next_state(result) == "Fail the pull without events"
        cause = evaluate(STATES["Fail the pull without events"]["Cause"], {"input": result}, source="s")
        assert cause == (
            "none of the 5 events of s was accepted; the first reason: no 'x' (all reasons: slackwater sideline show "
            "s). If the definition is wrong, correct sources/s.yaml and deploy: the next pull reads the files again"
        )
        assert self.next_state(totals(*results, {"state": "failed", "reason": "r"})) == "Fail the pull"

    @pytest.mark.parametrize(
        "results",
        [[], [fetched("stored")], [fetched("stored", rows=1, rejected=9)], [fetched("unchanged"), fetched("busy")]],
    )
    def test_other_pulls_succeed(self, results):
        assert self.next_state(totals(*results)) == "Finish the pull"

    def test_empty_files_and_new_columns_are_totaled(self):
        results = [fetched("stored"), fetched("unchanged"), fetched("stored", rejected=1), fetched("stored", rows=1)]
        columns = [fetched("duplicate", new_columns=names) for names in (["b", "a"], ["a"], ["c"])]
        result = totals(*results, *columns)
        assert (result["empty"], result["new_columns"]) == (1, ["b", "a", "c"])
        notes = [fetched("stored", rows=1, note=f"note {n}") for n in range(6)]
        result = totals(*notes, fetched("stored", rows=1), {"state": "failed", "reason": "r"})
        assert (result["noted"], result["notes"]) == (6, [f"note {n}" for n in range(5)])
        assert totals(notes[0])["notes"] == ["note 0"]
        many = [fetched("stored", new_columns=[f"{n}", f"{n}x"]) for n in range(9)]
        assert len(totals(*many)["new_columns"]) == 10

    def test_the_output_contains_only_the_totals(self):
        result = totals(fetched("stored"))
        answer = evaluate(STATES["Finish the pull"]["Output"], {"input": result})
        assert answer == {name: value for name, value in result.items() if name != "first_reason"}

    @pytest.mark.parametrize(
        ("cause", "reason"),
        [
            (
                json.dumps({"errorMessage": "f: empty", "errorType": "DataError", "stackTrace": ["x"]}),
                "f: empty",
            ),
            ('{"errorMessage":"close","errorType":"E"}', "close"),
            ("The cause could not be determined", "The cause could not be determined"),
            (json.dumps({"errorMessage": "x" * 1000}), "x" * 300),
        ],
    )
    def test_a_failed_file_has_a_short_reason(self, cause, reason):
        state = STATES["Fetch the files"]["ItemProcessor"]["States"]["Report the failed file"]
        assert evaluate(state["Output"], {"input": {"cause": cause}}) == {"state": "failed", "reason": reason}

    def test_a_job_that_cannot_be_started_passes_its_error_on(self):
        [catch] = STATES["Fetch the files"]["ItemProcessor"]["States"]["Fetch the large file"]["Catch"]
        error = {"Error": "EMRServerless.AccessDeniedException", "Cause": "not authorized"}
        output = evaluate(catch["Output"], {"input": {"source": "s"}, "errorOutput": error})
        assert output == {"source": "s", "job_error": "EMRServerless.AccessDeniedException: not authorized"}
        assert (
            len(evaluate(catch["Output"], {"input": {}, "errorOutput": {**error, "Cause": "x" * 999}})["job_error"])
            == 500
        )

    def test_the_report_of_a_file_is_short(self):
        output = STATES["Fetch the files"]["ItemProcessor"]["States"]["Report the file"]["Output"]
        stored_file = fetched("stored", "x" * 1024, rejected=1, bytes=70, reason="y" * 4000, new_columns=["a"])
        assert evaluate(output, {"input": stored_file}) == {**stored_file, "path": "", "reason": "y" * 300}
        noted = fetched("stored", "", rows=1, note="y" * 4000)
        assert evaluate(output, {"input": noted}) == {**noted, "note": "y" * 240}
        assert evaluate(output, {"input": fetched("vanished", "x" * 1024)}) == fetched("vanished", "x" * 120)

    @pytest.mark.parametrize(
        ("state", "answer"),
        [
            ("Report the file", fetched("vanished", "x" * 1024, rows=10**12, rejected=10**12, bytes=10**12)),
            (
                "Report the file",
                fetched(
                    *("stored", "f"),
                    rejected=10**12,
                    bytes=10**12,
                    reason="x" * 1024,
                    note="x" * 1024,
                    new_columns=["x" * 40] * 3,
                ),
            ),
            (
                "Report the file",
                fetched("stored", rows=10**12, rejected=10**12, note="x" * 1024, new_columns=["x" * 40] * 3),
            ),
            ("Report the failed file", {"cause": json.dumps({"errorMessage": "x" * 1024})}),
        ],
    )
    def test_the_results_of_all_files_fit_the_state_size(self, state, answer):
        output = STATES["Fetch the files"]["ItemProcessor"]["States"][state]["Output"]
        assert len(json.dumps([evaluate(output, {"input": answer})] * MAX_ITEMS)) < 256 * 2**10

    def test_the_events_of_all_files_fit_the_execution_history_although_each_needs_a_job_and_all_retries(self):
        assert ENDS + most_events(MACHINE, items=MAX_ITEMS) < HISTORY_LIMIT


class TestFunctions:
    """Both handlers over fakes and a real HTTP server, as the machine calls them."""

    @pytest.fixture
    def partner(self, tmp_path):
        flights_feed = feed.make_feed(tmp_path, DAYS)
        with PartnerServer(flights_feed.flights) as partner:
            yield partner

    @pytest.fixture
    def pull(self, monkeypatch, partner):
        project = example_project()
        flights = project.source("flights")
        moved = flights.model_copy(update={"pull": flights.pull.model_copy(update={"url": partner.url})})
        project = project.model_copy(update={"sources": {**project.sources, "flights": moved}})
        self.store, self.cache, self.counts = MemoryStore(), MemoryFileCache(), MemoryEventCounts()
        lister, fetcher = list_files, fetch_file
        settings = {
            "exchange_bucket": "exchange",
            "outbound_allow": "127.0.0.1",
            "job_network": "subnet-1",
        }
        raw_writer = RawWriter(store=self.store, raw_bucket="raw")
        ports = {"file_cache": self.cache, "project": project, "store": self.store, "event_counts": self.counts}
        ports["state_table"] = MemoryState()
        for function in (lister, fetcher):
            use_resources(monkeypatch, function, settings, raw_writer=raw_writer, **ports)

        def pull(**changes):
            request = {"source": "flights", "as_of": "2013-03-12", "correlation_id": "c-1", **changes}
            listing = lister.handler(request, None)
            item = {"source": "flights", "work": listing["work"], "correlation_id": "c-1"}
            return listing, [lambda n=n: fetcher.handler({**item, "index": n}, None) for n in range(listing["files"])]

        return pull

    def test_a_second_pull_fetches_nothing(self, pull):
        listing, files = pull()
        assert listing == {
            "files": 15,
            "listed": 15,
            "unchanged": 0,
            "busy": 0,
            "waiting": 0,
            "removed": 0,
            "doubtful": 0,
            "left": 0,
            "returned": 0,
            "unmatched": 0,
            "unmatched_files": [],
            "reports": 0,
            "refused_reports": [],
            "oldest_not_taken": None,
            "work": listing["work"],
        }
        assert listing["work"].startswith("s3://exchange/pulls/flights/c-1-")
        answers = [file() for file in files]
        assert {(answer["state"], answer["rejected"]) for answer in answers} == {("stored", 0)}
        assert sum(answer["rows"] for answer in answers) == 979 + 765 + 908
        assert sum(int(self.store.metadata(uri)["rows"]) for uri in self.store.uris("/raw/source=")) == 979 + 765 + 908
        counted = self.counts.by_source["flights"].values()
        assert sum(count.events for count in counted) == 979 + 765 + 908
        again, files = pull()
        assert (again["files"], again["unchanged"], files) == (0, 15, [])
        assert again["work"] != listing["work"]

    def test_a_file_that_vanishes_before_its_download_is_fetched_by_the_next_pull(self, pull, partner):
        _, files = pull()
        partner.vanishing.add("flights-2013-03-09-08.csv")
        assert Counter(file()["state"] for file in files) == {"stored": 14, "vanished": 1}
        partner.vanishing.clear()
        _, files = pull()
        assert [file()["state"] for file in files] == ["stored"]

    def test_an_invalid_file_fails_alone(self, pull, partner):
        partner.put("flights-2013-03-08-00.csv", "garbage\n")
        _, files = pull()
        with pytest.raises(DataError, match=r"^flights-2013-03-08-00.csv: its header lacks carrier, origin, time_hour"):
            files[0]()
        assert files[1]()["state"] == "stored"

    def test_an_unknown_source_is_an_error(self, pull):
        with pytest.raises(UnknownName):
            pull(source="nowhere")

    def test_without_a_date_the_pull_ends_today(self, pull):
        listing, _ = pull(as_of=None)
        assert (listing["files"], listing["listed"]) == (0, 0)

    def test_doubtful_removals_of_today_are_counted_and_stored_until_a_person_accepts_them(
        self, pull, monkeypatch, capsys
    ):
        for file in pull()[1]:
            file()
        nothing = SimpleNamespace(list=lambda pattern, dates: [])
        monkeypatch.setattr(list_files, "connector_of", lambda *_, **__: nullcontext(nothing))
        monkeypatch.setattr(Project, "records_removed", lambda *_: True)
        assert pull()[0]["doubtful"] == 15
        # A pull of a past date says nothing about today.
        assert "FilesDoubtful" not in capsys.readouterr().out
        monkeypatch.setattr(list_files, "is_of_today", lambda *_: True)
        for accepted, doubtful in ((0, 15), (14, 15), (15, 0)):
            assert pull(accept_removed=accepted)[0]["doubtful"] == doubtful
            assert f'"FilesDoubtful":[{doubtful}.0]' in capsys.readouterr().out
            stored = read_doubtful(self.store, exchange_bucket="exchange", source="flights")
            assert (stored.files if stored else 0) == doubtful

    def test_a_file_that_is_too_large_for_the_function_is_left_to_a_job(self, pull, monkeypatch):
        listing, files = pull()
        self.limit(monkeypatch, function_mb=0, max_file_mb=None)
        large = files[3]()
        assert (large["state"], large["work"], large["index"]) == ("large", listing["work"], 3)
        result = fetched("stored", "f", rows=1)
        self.store.put(large["answer"], json.dumps(result).encode())
        names = ("source", "work", "index", "correlation_id", "answer")
        assert fetch_file.handler({name: large[name] for name in names}, None) == result

    def limit(self, monkeypatch, **limits):
        """Change the limits of the source `flights`."""
        project = fetch_file.function_resources().project
        flights = project.source("flights")
        limited = flights.model_copy(update={"pull": flights.pull.model_copy(update=limits)})
        monkeypatch.setitem(project.sources, "flights", limited)

    def test_a_file_above_the_limit_of_its_source_fails_with_the_reason_and_starts_no_job(self, pull, monkeypatch):
        _, files = pull()
        self.limit(monkeypatch, function_mb=0, max_file_mb=0)
        self.expect_too_large(files[3])

    def test_without_a_network_of_jobs_a_file_fails_that_is_too_large_for_a_function(self, pull, monkeypatch):
        _, files = pull()
        self.limit(monkeypatch, function_mb=0, max_file_mb=None)
        monkeypatch.setattr(fetch_file.function_resources().settings, "job_network", "")
        self.expect_too_large(files[3])

    def expect_too_large(self, fetch):
        with pytest.raises(FileTooLarge, match="larger than 0 bytes, the limit: raise max_file_mb"):
            fetch()
        [entry] = [entry for entry in self.cache.not_taken("flights") if entry.reason]
        assert entry.state == "failed"
        assert entry.reason.endswith(
            "larger than 0 bytes, the limit: raise max_file_mb in sources/flights.yaml (above function_mb, jobs fetch "
            "a file, which need a network)"
        )

    def test_a_function_tries_a_file_again_that_killed_it_twice_if_no_job_can_fetch_it(self, pull, monkeypatch):
        listing, files = pull()
        item = large_files.read_item(self.store, listing["work"], 3)
        killed = item.model_copy(update={"killed_attempts": 2})
        monkeypatch.setattr(large_files, "read_item", lambda *_: killed)
        monkeypatch.setattr(fetch_file.function_resources().settings, "job_network", "")
        assert files[3]()["state"] == "stored"
