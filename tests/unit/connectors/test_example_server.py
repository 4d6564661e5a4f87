from __future__ import annotations

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
    def test_every_line_is_in_one_file(self):
        days = feed.days(date(2013, 1, 1), date(2013, 12, 31))
        assert len(days) == 365
        assert sum(content.count("\n") - 1 for day in days for content in feed.flights_files(day).values()) == 336_776

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
