from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, date, datetime, timedelta

import pytest

from examples.nyc_flights.partner import PartnerServer
from slackwater.errors import DefinitionError, OutboundRefused, PartnerError
from slackwater.outbound.credentials import Credentials
from slackwater.receiver.connectors import http_listing, json_page
from slackwater.receiver.connectors.connector import ListedFile
from slackwater.receiver.connectors.http_connector import HttpConnector
from slackwater.sources.file_pattern import FilePattern
from tests.fakes_web import Reply, Web, connector_of

pytestmark = pytest.mark.unit

DAYS = (date(2013, 3, 8), date(2013, 3, 9))


@pytest.fixture
def partner(web):
    with connector_of(f"{web.url}/files") as partner:
        yield partner


def names(partner: HttpConnector, pattern: str = "{date}*") -> list[str]:
    return [file.name for file in partner.list(FilePattern(pattern), DAYS)]


def letters(partner: HttpConnector) -> list[str]:
    """The letters in the names of the listed files."""
    return [name.removeprefix("2013-03-08-") for name in names(partner)]


def entries(letters: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"name": f"2013-03-08-{letter}"} for letter in letters]


def page(*letters: str, then: str | None = None, **headers: str) -> Reply:
    """A page of a JSON listing with a file for each letter; `then` links to the next page."""
    return Reply(body=json.dumps({"files": entries(letters), "next": then}).encode(), headers=headers)


def array(*letters: str, **headers: str) -> Reply:
    return Reply(body=json.dumps(entries(letters)).encode(), headers=headers)


def index(*links: str) -> Reply:
    return Reply(body="".join(f'<a href="{link}">a link</a>\n' for link in links).encode())


class TestJson:
    def test_every_field_of_a_listed_file_is_read(self, web, partner):
        entry = {
            "name": "2013-03-08/a.csv",
            "size": 5,
            "modified": "2013-03-08T12:00:00+01:00",
            "etag": '"one"',
            "owner": "me",
        }
        web.on("/files", Reply(body=json.dumps([entry, {"name": "2013-03-09"}]).encode()))
        assert partner.list(FilePattern("{date}*"), DAYS) == (ListedFile(name="2013-03-09"),)
        assert partner.list(FilePattern("{date}/*"), DAYS) == (
            ListedFile(name="2013-03-08/a.csv", size=5, modified=datetime(2013, 3, 8, 11, tzinfo=UTC), etag='"one"'),
        )

    @pytest.mark.parametrize(
        "body", [b"[]", b' {"files": []}', b'{"files": [], "next": null}', b'{"files": [], "next": ""}']
    )
    def test_an_empty_listing_has_no_files(self, web, partner, body):
        web.on("/files", Reply(body=body))
        assert letters(partner) == []
        assert len(web.requests) == 1

    @pytest.mark.parametrize("url", ["/files", "/files/", "/files?all=1", ""])
    def test_the_url_is_requested_as_configured(self, web, url):
        web.on(url or "/", array("a"))
        with connector_of(f"{web.url}{url}") as partner:
            assert letters(partner) == ["a"]

    def test_the_next_links_of_the_body_are_followed(self, web, partner):
        web.on("/files", page("a", "b", then="?page=2"))
        web.on("/files?page=2", page("c", then="/more"))
        web.on("/more", page(then=f"{web.url}/last"))
        web.on("/last", page("d"))
        assert letters(partner) == ["a", "b", "c", "d"]

    def test_the_next_links_of_the_header_are_followed(self, web, partner):
        web.on("/files", array("a", Link='</files?page=2>; rel="next", </files?page=9>; rel="last"'))
        web.on("/files?page=2", page("b", Link="<?page=3>; rel=next"))
        web.on("/files?page=3", array("c", Link='</files>; rel="first"'))
        assert letters(partner) == ["a", "b", "c"]

    def test_relative_links_are_resolved_against_the_redirected_url(self, web, other):
        web.on("/files", Reply(302, headers={"Location": f"{other.url}/a/b"}))
        other.on("/a/b", page("a", then="c"))
        other.on("/a/c", page("b"))
        with connector_of(f"{web.url}/files", allow=[other.entry]) as partner:
            assert letters(partner) == ["a", "b"]

    def test_a_page_that_fails_for_a_while_is_retried(self, web, partner):
        broken = Reply(body=page("b", "c").body, sent=60)
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", *[Reply(503)] * 2, broken, page("b", "c"))
        assert letters(partner) == ["a", "b", "c"]
        assert web.paths == ["/files", *["/files?page=2"] * 4]

    def test_links_in_a_circle_are_reported(self, web, partner):
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", page("b", then="/files"))
        with pytest.raises(
            PartnerError, match=f"^{web.url}/files: the listing has more than 10,000 pages, or links in a circle"
        ):
            letters(partner)
        assert len(web.requests) == 2

    def test_the_number_of_pages_is_limited(self, web, partner, monkeypatch):
        monkeypatch.setattr(http_listing, "MAX_PAGES", 3)
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", page("b", then="?page=3"))
        web.on("/files?page=3", page("c"), page("c", then="?page=4"))
        assert letters(partner) == ["a", "b", "c"]
        with pytest.raises(PartnerError, match="more than 3"):
            letters(partner)
        assert "/files?page=4" not in web.paths

    def test_the_size_of_all_pages_together_is_limited(self, web, partner, monkeypatch):
        pages = [page("a", then="?page=2"), page("b")]
        web.on("/files", pages[0])
        web.on("/files?page=2", pages[1])
        total = sum(len(reply.body) for reply in pages)
        monkeypatch.setattr(http_listing, "MAX_BYTES", total)
        assert letters(partner) == ["a", "b"]
        monkeypatch.setattr(http_listing, "MAX_BYTES", total - 1)
        with pytest.raises(PartnerError, match=f"its listing is larger than {total - 1} bytes"):
            letters(partner)

    @pytest.mark.parametrize(
        "then", ["http://169.254.169.254/", "http://127.0.0.2/", "gopher://127.0.0.1/", "//10.0.0.1/"]
    )
    def test_a_link_to_a_refused_address_is_not_followed(self, web, partner, then):
        web.on("/files", page("a", then=then))
        with pytest.raises(OutboundRefused):
            letters(partner)

    def test_an_invalid_link_is_reported(self, web, partner):
        web.on("/files", page("a", then="http://[::1/"))
        with pytest.raises(PartnerError, match=f"{web.url}/files: links to an invalid URL"):
            letters(partner)

    def test_credentials_are_sent_to_their_own_origin_only(self, web, other):
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", page("b", then=f"{other.url}/files"))
        other.on("/files", page("c", then=f"{web.url}/last"))
        web.on("/last", page("d"))
        with connector_of(f"{web.url}/files", allow=[other.entry], credentials=Credentials(token="hush")) as partner:
            assert letters(partner) == ["a", "b", "c", "d"]
        assert [request.headers.get("authorization") for request in web.requests] == ["Bearer hush"] * 3
        assert [request.headers.get("authorization") for request in other.requests] == [None]

    @pytest.mark.parametrize(
        ("listing", "message"),
        [
            (b"", r"\(whole\): Invalid JSON"),
            (b"<html>", r"\(whole\): Invalid JSON"),
            (b"{", r"\(whole\): Invalid JSON"),
            (b'"a"', r"\(whole\): Invalid JSON: an array of files, or an object with `files`, is expected"),
            (b"{}", "files: Field required"),
            (b"[] []", r"\(whole\): Invalid JSON: there is text after the end"),
            (b'{"files" []}', r"\(whole\): Invalid JSON: a key in double quotes and a colon are expected"),
            (b'{"files": [] "next": null}', r"\(whole\): Invalid JSON: a comma or the end of the object is expected"),
            (b'{"files": {}}', "files: an array is expected"),
            (b'{"files": [], "next": 2}', "next: a string or null is expected, not int"),
            (b'["a"]', "0: an object is expected, not str"),
            (b"[{}", "0.name: Field required"),
            (b'[{"name": "x"}, {"size": 1}]', "1.name: Field required"),
            (b'[{"name": "x"}, {"name": ["x"]}]', "1.name: Input should be a valid string"),
            (b'[{"name": "x"}, {"name": "y"', "1: Invalid JSON: Expecting ',' delimiter"),
            (b'[{"name": "\xff"}]', r"\(whole\): Invalid JSON: not UTF-8"),
            (b"[" + b"[" * 100_000, "0: Invalid JSON: nested too deeply"),
            (b'{"files": [{"name": "2013-03-08", "size": -1}]}', "files.0.size: "),
            (b'[{"name": "2013-03-08-\\\\.."}]', "0.name: "),
            (b'[{"name": ""}]', "0.name: "),
            (b'[{"name": "2013-03-08", "modified": "yesterday"}]', "0.modified: "),
        ],
    )
    def test_a_malformed_listing_is_reported_with_the_field(self, web, partner, listing, message):
        web.on("/files", Reply(body=listing))
        with pytest.raises(PartnerError, match=f"^{web.url}/files: not a listing of files: {message}"):
            letters(partner)

    def test_only_files_of_the_requested_days_are_kept_and_checked(self, web, partner):
        names = ["2013-03-07", "../a", "2013-03-08", "2013-03-10", "2013-03-09", "x"]
        body = [{"name": name, "size": 1 if name in {"2013-03-08", "2013-03-09"} else -1} for name in names]
        web.on("/files", Reply(body=json.dumps(body).encode()))
        assert [file.name for file in partner.list(FilePattern("{date}"), DAYS)] == ["2013-03-08", "2013-03-09"]

    def test_a_listing_of_many_files_takes_the_memory_of_those_of_the_requested_days(self, web, partner):
        old = ", ".join(f'{{"name": "2012-{number:07}", "etag": "{number:032}"}}' for number in range(100_000))
        body = f'{{"files": [{old}, {{"name": "2013-03-08"}}]}}'.encode()
        web.on("/files", Reply(body=body))
        tracemalloc.start()
        try:
            assert letters(partner) == ["2013-03-08"]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (len(body) > 6 * 2**20, peak < 2 * 2**20) == (True, True)

    def test_the_number_of_files_of_the_window_is_limited_over_all_pages(self, web, partner, monkeypatch):
        monkeypatch.setattr(json_page, "MAX_FILES", 2)
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", page("b"), page("b", "c"))
        assert letters(partner) == ["a", "b"]
        with pytest.raises(
            PartnerError, match=f"^{web.url}/files: it lists more than 2 files of the look-back window: set"
        ):
            letters(partner)

    def test_the_size_of_one_entry_is_limited(self, web, partner):
        web.on("/files", Reply(body=b'[{"name": "x", "note": "' + b"y" * 2**21 + b'"}]'))
        with pytest.raises(PartnerError, match=r"0: Invalid JSON: Unterminated .*, or a value of more than 1,048,576"):
            letters(partner)

    def test_a_page_that_breaks_off_is_read_again_from_its_start(self, web, partner):
        web.on("/files", Reply(body=page("a", "b").body, sent=60), page("a", "b"))
        assert letters(partner) == ["a", "b"]

    @pytest.mark.parametrize("status", [204, 401, 403, 404, 410])
    def test_an_unexpected_status_is_reported(self, web, partner, status):
        web.on("/files", Reply(status))
        with pytest.raises(PartnerError, match=f"^{web.url}/files: answered {status}, where 200 is expected"):
            letters(partner)


class TestRecognisedHtml:
    """Pages of HTML although the source expects a JSON listing."""

    @pytest.fixture(autouse=True)
    def _accept_head_requests(self, web):
        web.heads = 200

    def answer(self, web, *links: str) -> None:
        page = Reply(body=index(*links).body, headers={"content-type": "text/html; charset=utf-8"})
        for path in ("/files", "/files/"):
            web.on(path, page)

    def test_an_index_with_files_of_the_window_is_read(self, web, partner):
        self.answer(web, "2013-03-08.csv", "2013-03-07.csv")
        assert names(partner) == ["2013-03-08.csv"]

    def test_another_page_is_an_error_with_the_remedy(self, web, partner):
        self.answer(web, "/login")
        with pytest.raises(PartnerError, match=r"/files: an HTML page that links to no file of .* set `listing: html`"):
            names(partner)

    def test_a_folder_with_a_star_is_an_error(self, web, partner):
        self.answer(web, "2013-03-08.csv")
        with pytest.raises(DefinitionError, match="an HTML index lists one folder"):
            names(partner, "*/{date}.csv")


class TestHtml:
    @pytest.fixture(autouse=True)
    def _accept_head_requests(self, web):
        web.heads = 200

    @pytest.fixture
    def partner(self, web):
        with connector_of(f"{web.url}/files", listing="html") as partner:
            yield partner

    def test_the_files_of_the_example_server_are_listed(self, tmp_path):
        with PartnerServer(tmp_path) as server, connector_of(server.url, listing="html") as partner:
            for name in ("2013-03-08 a&b#?%41.csv", "2013-03-09.csv", "2013-03-10.csv"):
                server.put(name, "x")
            listed = partner.list(FilePattern("{date}*.csv"), DAYS)
            assert [file.name for file in listed] == ["2013-03-08 a&b#?%41.csv", "2013-03-09.csv"]
            assert [(file.size, file.etag) for file in listed] == [(1, server.listing()[0]["etag"])] * 2

    @pytest.mark.parametrize("url", ["", "/", "/files", "/files/", "/files?key=1"])
    def test_the_index_page_of_the_folder_is_requested(self, web, url):
        path, _, query = url.rstrip("/").partition("?")
        web.on(f"{path}/{'?' if query else ''}{query}", index("2013-03-08"))
        with connector_of(f"{web.url}{url}", listing="html") as partner:
            assert names(partner, "{date}") == ["2013-03-08"]

    def test_only_files_of_the_requested_days_are_listed(self, web, partner):
        web.on(
            "/files/", index("2013-03-07.csv", "2013-03-09.csv", "2013-03-08.csv", "2013-03-09.xml", "2013-03-09.csv/")
        )
        assert names(partner, "{date}.csv") == ["2013-03-09.csv", "2013-03-08.csv"]

    def test_links_of_a_redirected_page_are_resolved_against_its_url(self, web, partner):
        web.on("/files/", Reply(301, headers={"Location": "/new/"}))
        web.on("/new/", index("2013-03-08.csv", "/new/2013-03-09.csv", "/files/2013-03-09-old.csv"))
        assert names(partner) == ["2013-03-08.csv", "2013-03-09.csv"]

    @pytest.mark.parametrize(
        ("pattern", "folders", "files"),
        [
            ("{date:%Y/%m/%d}/x-*.csv", ["2013/03/08", "2013/03/09"], ["2013/03/08/x-1.csv", "2013/03/09/x-1.csv"]),
            ("flights/x-*{date}.csv", ["flights"], ["flights/x-2013-03-08.csv"]),
            ("{date:%Y/%m/%d}.csv", ["2013/03"], ["2013/03/08.csv"]),
            ("{date:%Y}/{date:%j}/*", ["2013/067", "2013/068"], ["2013/067/a", "2013/068/b"]),
            ("{date}/{hour}/x", [f"{day}/{hour:02}" for day in DAYS for hour in range(24)], ["2013-03-09/23/x"]),
        ],
    )
    def test_the_folders_of_the_pattern_are_listed(self, web, partner, pattern, folders, files):
        for folder in folders:
            names_in_folder = [name.removeprefix(f"{folder}/") for name in files if name.startswith(folder)]
            web.on(f"/files/{folder}/", index("../", "below/", *names_in_folder))
        assert names(partner, pattern) == files
        requested = [request.path for request in web.requests if request.method == "GET"]
        assert requested == [f"/files/{folder}/" for folder in folders]

    def test_folder_names_are_quoted_in_the_url(self, web, partner):
        web.on("/files/a%20b%3F/2013/", index("03-08"))
        assert names(partner, "a b?/{date:%Y/%m-%d}") == ["a b?/2013/03-08"]

    @pytest.mark.parametrize("status", [404, 410])
    def test_a_missing_folder_is_empty(self, web, partner, status):
        web.on("/files/2013-03-08/", Reply(status))
        web.on("/files/2013-03-09/", index("x"))
        assert names(partner, "{date}/x*") == ["2013-03-09/x"]

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_denied_folder_is_reported(self, web, partner, status):
        web.on("/files/2013-03-08/", Reply(status))
        with pytest.raises(PartnerError, match=f"^{web.url}/files/2013-03-08/: answered {status}"):
            names(partner, "{date}/x*")

    @pytest.mark.parametrize("status", [404, 410])
    def test_a_missing_root_folder_is_reported(self, web, partner, status):
        web.on("/files/", Reply(status))
        with pytest.raises(PartnerError, match=f"^{web.url}/files/: answered {status}"):
            names(partner)

    @pytest.mark.parametrize("pattern", ["*/{date}", "{date}/*/x", "a*/{date}/x"])
    def test_a_wildcard_in_a_folder_name_is_refused(self, web, partner, pattern):
        with pytest.raises(DefinitionError, match="lists one folder, so a folder's name cannot"):
            names(partner, pattern)
        assert web.requests == []

    def test_a_changed_file_has_another_etag(self, web, partner):
        web.on("/files/", index("2013-03-08.csv"))
        web.on("/files/2013-03-08.csv", Reply(headers={"ETag": '"1"'}), Reply(headers={"ETag": '"2"'}))
        tags = [file.etag for _ in range(2) for file in partner.list(FilePattern("{date}.csv"), DAYS)]
        assert tags == ['"1"', '"2"']

    def test_a_matching_name_that_cannot_be_fetched_is_reported(self, web, partner):
        web.on("/files/", index("x%5Cy", "2013-03-08%5Cy"))
        with pytest.raises(PartnerError, match=r"2013-03-08.+y.+cannot be fetched"):
            names(partner)

    def test_a_year_of_files_every_five_minutes_is_listed(self, web, partner):
        row = '<tr><td><a href="{0}">{0}</a></td><td align="right">2013-03-08 12:00  </td><td>1.2M</td></tr>'
        year = [date(2012, 12, 31) + timedelta(days=number) for number in range(1, 366)]
        files = [f"flights-{day}T{number // 12:02}{number % 12 * 5:02}.csv" for day in year for number in range(288)]
        page = "\n".join(row.format(name) for name in files).encode()
        web.on("/files/", Reply(body=page))
        assert len(page) > 12 * 2**20
        listed = http_listing.names_in_indexes(
            partner._session, lambda path: f"{web.url}/files/{path}", FilePattern("flights-{date}T*.csv"), DAYS
        )
        assert list(listed) == [name for name in files if "2013-03-08" in name or "2013-03-09" in name]

    def test_the_size_of_an_index_page_is_limited(self, web, partner, monkeypatch):
        monkeypatch.setattr(http_listing, "MAX_INDEX_BYTES", 100)
        web.on("/files/", Reply(body=b" " * 100), Reply(body=b" " * 101))
        assert names(partner) == []
        with pytest.raises(PartnerError, match="larger than 100 bytes"):
            names(partner)


class TestWithoutListing:
    @pytest.fixture
    def partner(self, web):
        with connector_of(f"{web.url}/files", files="{date:%Y}/{date}.csv", listing="none") as partner:
            yield partner

    def requests(self, web: Web) -> list[tuple[str, str, str | None]]:
        return [(request.method, request.path, request.headers.get("range")) for request in web.requests]

    def list(self, partner: HttpConnector, pattern: str = "{date:%Y}/{date}.csv") -> list[ListedFile]:
        return list(partner.list(FilePattern(pattern), DAYS))

    def test_each_file_name_of_the_days_is_requested(self, web, partner):
        headers = {"ETag": '"one"', "Last-Modified": "Fri, 08 Mar 2013 12:00:00 GMT"}
        web.on("/files/2013/2013-03-09.csv", Reply(body=b"hello", headers=headers))
        modified = datetime(2013, 3, 8, 12, tzinfo=UTC)
        assert self.list(partner) == [ListedFile(name="2013/2013-03-09.csv", size=5, modified=modified, etag='"one"')]
        assert self.requests(web) == [("HEAD", f"/files/2013/{day}.csv", None) for day in DAYS]

    def test_each_hour_of_the_days_is_requested(self, web, partner):
        web.on("/files/2013-03-08T07", Reply())
        assert self.list(partner, "{date}T{hour}") == [ListedFile(name="2013-03-08T07", size=0)]
        assert len(web.requests) == 48

    def test_a_name_shared_by_several_days_is_requested_once(self, web, partner):
        self.list(partner, "{date:%Y}")
        assert web.paths == ["/files/2013"]

    @pytest.mark.parametrize(
        "headers",
        [
            {"Transfer-Encoding": "chunked"},
            {"Content-Encoding": "gzip", "Last-Modified": "yesterday"},
            {"Transfer-Encoding": "chunked", "Last-Modified": "Fri, 31 Dec 9999 23:59:59 -0100"},
            {"Transfer-Encoding": "chunked", "Last-Modified": "", "ETag": ""},
        ],
        ids=["no length", "compressed", "no such time", "nothing"],
    )
    def test_size_and_time_are_none_without_usable_headers(self, web, partner, headers):
        web.on("/files/2013", Reply(headers=headers))
        (file,) = self.list(partner, "{date:%Y}")
        assert (file.size, file.modified) == (None, None)

    @pytest.mark.parametrize("status", [405, 501])
    def test_a_server_without_head_gets_a_range_request(self, web, partner, status):
        part = {"Content-Range": "bytes 0-0/1234", "ETag": '"one"'}
        web.on("/files/2013/2013-03-08.csv", Reply(status), Reply(206, b"x", part))
        web.on("/files/2013/2013-03-09.csv", Reply(404))
        assert self.list(partner) == [ListedFile(name="2013/2013-03-08.csv", size=1234, etag='"one"')]
        assert self.requests(web) == [
            ("HEAD", "/files/2013/2013-03-08.csv", None),
            ("GET", "/files/2013/2013-03-08.csv", "bytes=0-0"),
            ("GET", "/files/2013/2013-03-09.csv", "bytes=0-0"),
        ]

    @pytest.mark.parametrize(
        ("response", "size"),
        [
            (Reply(206, b"x", {"Content-Range": "bytes 0-0/7"}), 7),
            (Reply(206, b"x", {"Content-Range": "bytes 0-0/*"}), None),
            (Reply(200, b"hello"), 5),
            (Reply(416, b"", {"Content-Range": "bytes */0"}), 0),
        ],
        ids=["a part", "a part of an unknown size", "all of it", "empty"],
    )
    def test_the_size_is_read_from_the_range_response(self, web, partner, response, size):
        web.on("/files/2013", Reply(405), response)
        assert self.list(partner, "{date:%Y}") == [ListedFile(name="2013", size=size)]

    @pytest.mark.parametrize(
        "response",
        [
            Reply(405),
            Reply(416),
            Reply(206, b"x"),
            Reply(206, b"x", {"Content-Range": "bytes 0-0/" + "9" * 5_000}),
            Reply(403),
            Reply(204),
        ],
        ids=lambda reply: str(reply.status),
    )
    def test_an_unusable_response_is_reported(self, web, partner, response):
        web.on("/files/2013", Reply(405), response)
        with pytest.raises(PartnerError, match=f"^{web.url}/files/2013: answered {response.status}, where 200"):
            self.list(partner, "{date:%Y}")

    def test_redirects_are_followed_and_temporary_failures_retried(self, web, partner):
        web.on("/files/2013", Reply(503), Reply(302, headers={"Location": "/there"}))
        web.on("/there", Reply(429), Reply(body=b"hello"))
        assert self.list(partner, "{date:%Y}") == [ListedFile(name="2013", size=5)]
        assert {request.method for request in web.requests} == {"HEAD"}

    def test_the_files_of_the_example_server_are_listed(self, tmp_path):
        with PartnerServer(tmp_path) as server, connector_of(server.url, files="{date}", listing="none") as partner:
            server.put("2013-03-09", "hello")
            (file,) = self.list(partner, "{date}")
            assert (file.name, file.size, file.etag) == ("2013-03-09", 5, server.listing()[0]["etag"])
