from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, date, datetime, timedelta

import httpx
import pytest

from examples.nyc_flights import feed
from examples.nyc_flights.partner import Partner
from slackwater.errors import FileVanished, PartnerError
from slackwater.receiver.http_partner import HttpPartner

pytestmark = pytest.mark.unit

NAME = "flights-2013-03-08.csv"


@pytest.fixture
def server(tmp_path):
    with Partner(tmp_path / "files") as server:
        yield server


@pytest.fixture
def waits():
    return []


@pytest.fixture
def partner(server, waits):
    partner = HttpPartner(server.url, max_file_bytes=1000, sleep=waits.append)
    yield partner
    partner.close()


def scripted(*answers, waits=None, **more):
    """A partner whose server gives these answers in turn."""
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    sleep = waits.append if waits is not None else lambda _: None
    return HttpPartner(
        "http://partner/files", max_file_bytes=1000, transport=httpx.MockTransport(answer), sleep=sleep, **more
    )


class TestServer:
    def get(self, url: str, **headers: str):
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read()

    def test_listing_and_file(self, server):
        server.put(NAME, "hello")
        _, headers, body = self.get(server.url)
        (entry,) = json.loads(body)
        assert headers["Content-Type"] == "application/json"
        assert set(entry) == {"name", "size", "modified", "etag"}
        assert (entry["name"], entry["size"]) == (NAME, 5)
        assert datetime.fromisoformat(entry["modified"]).tzinfo is not None
        status, headers, body = self.get(f"{server.url}/{NAME}")
        assert (status, body, headers["ETag"], headers["Content-Length"]) == (200, b"hello", entry["etag"], "5")

    def test_the_tag_is_of_the_content(self, server):
        def tag() -> str:
            return server.listing()[0]["etag"]

        server.put(NAME, "one")
        first = tag()
        server.put(NAME, "two")
        assert tag() != first
        server.put(NAME, "one")
        assert tag() == first
        server.remove(NAME)
        assert server.listing() == []

    @pytest.mark.parametrize(
        ("wanted", "status", "body", "range_"),
        [
            ("bytes=1-3", 206, b"ell", "bytes 1-3/5"),
            ("bytes=3-", 206, b"lo", "bytes 3-4/5"),
            ("bytes=-2", 206, b"lo", "bytes 3-4/5"),
            ("bytes=0-99", 206, b"hello", "bytes 0-4/5"),
            ("bytes=5-", 416, b"", "bytes */5"),
            ("lines=1-2", 200, b"hello", None),
        ],
    )
    def test_ranges(self, server, wanted, status, body, range_):
        server.put(NAME, "hello")
        found, headers, content = self.get(f"{server.url}/{NAME}", Range=wanted)
        assert (found, content, headers.get("Content-Range")) == (status, body, range_)

    @pytest.mark.parametrize("path", ["/none.csv", "/../secret", "/%2e%2e%2fsecret", "/.hidden", "/", "/a/b"])
    def test_nothing_outside_its_folder(self, server, path):
        (server.folder.parent / "secret").write_text("secret")
        (server.folder / ".hidden").write_text("secret")
        status, _, body = self.get(server.url + path)
        assert (status, body) == (404, b"no such file\n")

    def test_as_a_program(self, tmp_path):
        (tmp_path / NAME).write_text("hello")
        command = [sys.executable, "examples/nyc_flights/partner.py", "--port", "0", "--folder", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                url = process.stdout.readline().split()[-1]
                assert url.startswith("http://127.0.0.1:")
                assert json.loads(self.get(url)[2])[0]["name"] == NAME
            finally:
                process.kill()


class TestHttpPartner:
    def test_a_file_is_listed_and_fetched(self, server, partner):
        server.put(NAME, "hello")
        (listed,) = partner.list()
        into = io.BytesIO()
        download = partner.fetch(NAME, into)
        assert into.getvalue() == b"hello"
        assert (download.size, download.sha256) == (5, hashlib.sha256(b"hello").hexdigest())
        assert (listed.name, listed.size, listed.etag) == (NAME, 5, f'"{download.etag}"')

    def test_a_file_that_vanishes_after_it_was_listed(self, server, partner, waits):
        server.put(NAME, "hello")
        server.vanishing.add(NAME)
        assert [file.name for file in partner.list()] == [NAME]
        with pytest.raises(FileVanished, match=f"{server.url}/{NAME}: listed, but gone"):
            partner.fetch(NAME, io.BytesIO())
        assert waits == []

    def test_a_passing_failure_is_tried_again(self, server, partner, waits):
        server.put(NAME, "hello")
        server.failing = {"/flights": 1, f"/flights/{NAME}": 2}
        assert len(partner.list()) == 1
        partner.fetch(NAME, io.BytesIO())
        assert server.requests == {"/flights": 2, f"/flights/{NAME}": 3}
        assert waits == [0, 0, 0]  # Retry-After: 0

    def test_a_lasting_failure_ends(self, server, partner, waits):
        server.failing = {"/flights": 99}
        with pytest.raises(PartnerError, match=f"{server.url}: answered 503"):
            partner.list()
        assert server.requests["/flights"] == 4

    def test_nobody_there(self, tmp_path, waits):
        with Partner(tmp_path) as server:
            url = server.url
        partner = HttpPartner(url, max_file_bytes=1, sleep=waits.append)
        with pytest.raises(PartnerError, match=url):
            partner.list()
        partner.close()
        assert len(waits) == 3
        assert all(0 <= wait <= 8 for wait in waits)

    @pytest.mark.parametrize(
        ("header", "low", "high"),
        [("2", 2, 2), ("3600", 30, 30), ("nonsense", 0, 1), (None, 0, 1)],
    )
    def test_the_wait_is_what_the_partner_asks_for_up_to_a_bound(self, header, low, high):
        waits = []
        busy = httpx.Response(429, headers={"retry-after": header} if header else {})
        assert scripted(busy, httpx.Response(200, json=[]), waits=waits).list() == ()
        assert len(waits) == 1
        assert low <= waits[0] <= high

    def test_the_wait_may_be_asked_for_as_a_date(self):
        waits = []
        date_ = (datetime.now(UTC) + timedelta(hours=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")
        scripted(httpx.Response(503, headers={"retry-after": date_}), httpx.Response(200, json=[]), waits=waits).list()
        assert waits == [30]

    def test_a_time_out_is_tried_again(self):
        assert scripted(httpx.ReadTimeout("slow"), httpx.Response(200, json=[])).list() == ()

    @pytest.mark.parametrize("status", [301, 400, 401, 403, 404])
    def test_other_answers_are_not_tried_again(self, status):
        waits = []
        with pytest.raises(PartnerError, match=f"http://partner/files: answered {status}"):
            scripted(httpx.Response(status, headers={"location": "http://elsewhere"}), waits=waits).list()
        assert waits == []

    @pytest.mark.parametrize("status", [404, 410])
    def test_gone(self, status):
        with pytest.raises(FileVanished):
            scripted(httpx.Response(status)).fetch("x", io.BytesIO())

    @pytest.mark.parametrize(
        ("listing", "says"),
        [
            (b"<html>", "Invalid JSON"),
            (b'{"files": []}', "whole"),
            (b'[{"name": "a"}]', "0.size: Field required"),
            (b'[{"name": "a", "size": -1}]', "0.size"),
            (b'[{"name": "../a", "size": 1}]', "0.name"),
            (b'[{"name": "a", "size": 1, "modified": "yesterday"}]', "0.modified"),
        ],
    )
    def test_listings_that_are_none(self, listing, says):
        with pytest.raises(PartnerError, match=f"http://partner/files: not a listing of files: .*{says}"):
            scripted(httpx.Response(200, content=listing)).list()

    def test_what_else_a_listing_says_is_let_be(self):
        (file,) = scripted(httpx.Response(200, json=[{"name": "a", "size": 1, "owner": "me"}])).list()
        assert (file.name, file.etag, file.modified) == ("a", None, None)

    def test_a_file_that_is_too_large(self):
        with pytest.raises(PartnerError, match="larger than 1,000 bytes"):
            scripted(httpx.Response(200, content=b"x" * 1001)).fetch("x", io.BytesIO())

    def test_a_download_that_breaks_off_begins_anew(self):
        class Broken(httpx.SyncByteStream):
            def __iter__(self):
                yield b"broken"
                raise httpx.ReadError("connection lost")

        into = io.BytesIO()
        partner = scripted(httpx.Response(200, stream=Broken()), httpx.Response(200, content=b"whole"))
        assert partner.fetch("x", into).sha256 == hashlib.sha256(b"whole").hexdigest()
        assert into.getvalue() == b"whole"

    def test_names_are_quoted(self, server, partner):
        server.put("a b#1?.csv", "x")
        assert partner.fetch(partner.list()[0].name, io.BytesIO()).size == 1


class TestFeed:
    def test_flights_are_the_package_s_lines(self):
        files = feed.flights_files(date(2013, 3, 8))
        header, *lines = files["flights-2013-03-08-20.csv"].splitlines()
        assert header.startswith("year,month,day,dep_time,") and header.endswith(",time_hour")  # noqa: PT018
        assert {line.split(",")[2] for line in lines} == {"8"}
        assert {line.split(",")[16] for line in lines} == {"20", "21", "22", "23"}
        assert sum(text.count("\n") - 1 for text in files.values()) == 979

    def test_every_line_is_in_one_file(self):
        days = feed.days(date(2013, 1, 1), date(2013, 12, 31))
        assert len(days) == 365
        assert sum(text.count("\n") - 1 for day in days for text in feed.flights_files(day).values()) == 336_776

    def test_weather_by_day_and_by_hour(self):
        day = list(feed.weather_of_day(date(2013, 3, 8)))
        assert {event["origin"] for event in day} == {"EWR", "JFK", "LGA"}
        assert all(isinstance(event["temp"], float) and isinstance(event["hour"], int) for event in day)
        assert any(event["wind_gust"] is None for event in day)
        start = datetime(2013, 3, 8, 12, tzinfo=UTC)
        hour = list(feed.weather_of_hours(start, start + timedelta(hours=1)))
        assert [event["time_hour"] for event in hour] == ["2013-03-08T12:00:00Z"] * 3

    def test_a_feed_is_written_once_and_may_be_held_back(self, tmp_path):
        made = feed.make_feed(tmp_path, ["2013-03-08", date(2013, 3, 9)])
        files = sorted(tmp_path / "flights" / name for day in made.dates for name in feed.flights_files(day))
        assert sorted(made.flights.iterdir()) == files
        before = [path.stat().st_mtime_ns for path in [*files, made.weather]]
        feed.make_feed(tmp_path, made.dates)
        assert [path.stat().st_mtime_ns for path in [*files, made.weather]] == before
        start, whole = datetime(2013, 3, 8, 12, tzinfo=UTC), made.weather.read_text().splitlines()
        made.hold_back([files[0].name], weather=(start, start + timedelta(hours=1)))
        assert sorted(made.flights.iterdir()) == files[1:]
        sent, late = (path.read_text().splitlines() for path in (made.weather, made.late_weather))
        assert (len(late), sorted(sent + late)) == (3, sorted(whole))
        assert made.release() == [files[0].name]
        assert sorted(made.flights.iterdir()) == files
        feed.make_feed(tmp_path, made.dates)
        assert len(made.weather.read_text().splitlines()) == sum(
            1 for day in made.dates for _ in feed.weather_of_day(day)
        )
