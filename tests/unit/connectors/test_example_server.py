from __future__ import annotations

import http.client
import json
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, date, datetime, timedelta

import pytest

from examples.nyc_flights import feed
from examples.nyc_flights.partner import PartnerServer

pytestmark = pytest.mark.unit

NAME = "flights-2013-03-08.csv"


@pytest.fixture
def server(tmp_path):
    with PartnerServer(tmp_path / "files") as server:
        yield server


class TestServer:
    def get(self, url: str, *, method: str = "GET", **headers: str):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(url, headers=names, method=method)
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, dict(response.headers), response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read()

    def test_the_listing_and_its_file_are_served(self, server):
        server.put(NAME, "hello")
        _, headers, body = self.get(server.url)
        (entry,) = json.loads(body)
        assert headers["Content-Type"] == "application/json"
        assert set(entry) == {"name", "size", "modified", "etag"}
        assert (entry["name"], entry["size"]) == (NAME, 5)
        assert datetime.fromisoformat(entry["modified"]).tzinfo is not None
        status, headers, body = self.get(f"{server.url}/{NAME}")
        assert (status, body, headers["ETag"], headers["Content-Length"]) == (200, b"hello", entry["etag"], "5")

    def test_the_etag_depends_on_the_content(self, server):
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
        ("requested_range", "status", "body", "range_"),
        [
            ("bytes=1-3", 206, b"ell", "bytes 1-3/5"),
            ("bytes=3-", 206, b"lo", "bytes 3-4/5"),
            ("bytes=-2", 206, b"lo", "bytes 3-4/5"),
            ("bytes=0-99", 206, b"hello", "bytes 0-4/5"),
            ("bytes=5-", 416, b"", "bytes */5"),
            ("lines=1-2", 200, b"hello", None),
        ],
    )
    def test_byte_ranges_are_served(self, server, requested_range, status, body, range_):
        server.put(NAME, "hello")
        actual_status, headers, content = self.get(f"{server.url}/{NAME}", Range=requested_range)
        assert (actual_status, content, headers.get("Content-Range")) == (status, body, range_)

    def test_a_range_of_another_version_gets_the_complete_file(self, server):
        server.put(NAME, "hello")
        tag = server.listing()[0]["etag"]
        assert self.get(f"{server.url}/{NAME}", Range="bytes=3-", If_Range=tag)[::2] == (206, b"lo")
        assert self.get(f"{server.url}/{NAME}", Range="bytes=3-", If_Range='"other"')[::2] == (200, b"hello")

    @pytest.mark.parametrize("path", ["", "/", f"/{NAME}", "/none"])
    def test_head_returns_the_headers_of_get(self, server, path):
        server.put(NAME, "hello")
        status, headers, _ = self.get(server.url + path)
        head_status, head_headers, body = self.get(server.url + path, method="HEAD")
        assert (head_status, head_headers | {"Date": ""}, body) == (status, headers | {"Date": ""}, b"")

    def test_the_index_page_links_to_the_files(self, server):
        server.put("a b&<c>.csv", "hello")
        _, headers, body = self.get(f"{server.url}/")
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert '<a href="a%20b%26%3Cc%3E.csv">a b&amp;&lt;c&gt;.csv</a>' in body.decode()

    def test_responses_can_be_cut_off(self, server):
        server.put(NAME, "hello")
        server.cutting[f"/flights/{NAME}"] = [2, 0]
        for received in (b"he", b""):
            with pytest.raises(http.client.IncompleteRead) as broken:
                self.get(f"{server.url}/{NAME}")
            assert broken.value.partial == received
        assert self.get(f"{server.url}/{NAME}")[2] == b"hello"

    @pytest.mark.parametrize("path", ["/none.csv", "/../secret", "/%2e%2e%2fsecret", "/.hidden", "/a/b", "//"])
    def test_files_outside_the_folder_are_not_served(self, server, path):
        (server.folder.parent / "secret").write_text("secret")
        (server.folder / ".hidden").write_text("secret")
        status, _, body = self.get(server.url + path)
        assert (status, body) == (404, b"no such file\n")

    def test_the_server_runs_as_a_program(self, tmp_path):
        (tmp_path / NAME).write_text("hello")
        command = [sys.executable, "examples/nyc_flights/partner.py", "--port", "0", "--folder", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                url = process.stdout.readline().split()[-1]
                assert url.startswith("http://127.0.0.1:")
                assert json.loads(self.get(url)[2])[0]["name"] == NAME
            finally:
                process.kill()


class TestFeed:
    def test_flights_are_the_lines_of_the_package(self):
        files = feed.flights_files(date(2013, 3, 8))
        header, *lines = files["flights-2013-03-08-20.csv"].splitlines()
        assert header.startswith("year,month,day,dep_time,") and header.endswith(",time_hour")  # noqa: PT018
        assert {line.split(",")[2] for line in lines} == {"8"}
        assert {line.split(",")[16] for line in lines} == {"20", "21", "22", "23"}
        assert sum(content.count("\n") - 1 for content in files.values()) == 979

    def test_every_line_is_in_one_file(self):
        days = feed.days(date(2013, 1, 1), date(2013, 12, 31))
        assert len(days) == 365
        assert sum(content.count("\n") - 1 for day in days for content in feed.flights_files(day).values()) == 336_776

    def test_weather_is_read_by_day_and_by_hour(self):
        day = list(feed.weather_of_day(date(2013, 3, 8)))
        assert {event["origin"] for event in day} == {"EWR", "JFK", "LGA"}
        assert all(isinstance(event["temp"], float) and isinstance(event["hour"], int) for event in day)
        assert any(event["wind_gust"] is None for event in day)
        start = datetime(2013, 3, 8, 12, tzinfo=UTC)
        hour = list(feed.weather_of_hours(start, start + timedelta(hours=1)))
        assert [event["time_hour"] for event in hour] == ["2013-03-08T12:00:00Z"] * 3

    def test_a_feed_is_written_once_and_parts_can_be_held_back(self, tmp_path):
        flights_feed = feed.make_feed(tmp_path, ["2013-03-08", date(2013, 3, 9)])
        files = sorted(tmp_path / "flights" / name for day in flights_feed.dates for name in feed.flights_files(day))
        assert sorted(flights_feed.flights.iterdir()) == files
        before = [path.stat().st_mtime_ns for path in [*files, flights_feed.weather]]
        feed.make_feed(tmp_path, flights_feed.dates)
        assert [path.stat().st_mtime_ns for path in [*files, flights_feed.weather]] == before
        start, whole = datetime(2013, 3, 8, 12, tzinfo=UTC), flights_feed.weather.read_text().splitlines()
        flights_feed.hold_back([files[0].name], weather=(start, start + timedelta(hours=1)))
        assert sorted(flights_feed.flights.iterdir()) == files[1:]
        sent, late = (path.read_text().splitlines() for path in (flights_feed.weather, flights_feed.late_weather))
        assert (len(late), sorted(sent + late)) == (3, sorted(whole))
        assert flights_feed.release() == [files[0].name]
        assert sorted(flights_feed.flights.iterdir()) == files
        feed.make_feed(tmp_path, flights_feed.dates)
        assert len(flights_feed.weather.read_text().splitlines()) == sum(
            1 for day in flights_feed.dates for _ in feed.weather_of_day(day)
        )
