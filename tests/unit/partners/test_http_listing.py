from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pytest

from examples.nyc_flights.partner import PartnerServer
from slackwater.errors import DefinitionError, OutboundRefused, PartnerError
from slackwater.receiver.partners import http_listing
from slackwater.receiver.partners.credentials import Credentials
from slackwater.receiver.partners.http_partner import HttpPartner
from slackwater.receiver.partners.partner import ListedFile
from slackwater.sources.file_pattern import FilePattern
from tests.fakes_web import Reply, Web, partner_of

pytestmark = pytest.mark.unit

DAYS = (date(2013, 3, 8), date(2013, 3, 9))


@pytest.fixture
def partner(web):
    with partner_of(f"{web.url}/files") as partner:
        yield partner


def names(partner: HttpPartner, pattern: str = "{date}*") -> list[str]:
    return [file.name for file in partner.list(FilePattern(pattern), DAYS)]


def page(*names: str, then: str | None = None, **headers: str) -> Reply:
    """A page of a JSON listing; `then` links to the next page."""
    return Reply(body=json.dumps({"files": [{"name": name} for name in names], "next": then}).encode(), headers=headers)


def array(*names: str, **headers: str) -> Reply:
    return Reply(body=json.dumps([{"name": name} for name in names]).encode(), headers=headers)


def index(*links: str) -> Reply:
    return Reply(body="".join(f'<a href="{link}">a link</a>\n' for link in links).encode())


class TestJson:
    def test_every_field_of_a_listed_file_is_read(self, web, partner):
        entry = {
            "name": "2013/a.csv",
            "size": 5,
            "modified": "2013-03-08T12:00:00+01:00",
            "etag": '"one"',
            "owner": "me",
        }
        web.on("/files", Reply(body=json.dumps([entry, {"name": "b"}]).encode()))
        assert partner.list(FilePattern("{date}"), DAYS) == (
            ListedFile(name="2013/a.csv", size=5, modified=datetime(2013, 3, 8, 11, tzinfo=UTC), etag='"one"'),
            ListedFile(name="b"),
        )

    @pytest.mark.parametrize(
        "body", [b"[]", b' {"files": []}', b'{"files": [], "next": null}', b'{"files": [], "next": ""}']
    )
    def test_an_empty_listing_has_no_files(self, web, partner, body):
        web.on("/files", Reply(body=body))
        assert names(partner) == []
        assert len(web.requests) == 1

    @pytest.mark.parametrize("url", ["/files", "/files/", "/files?all=1", ""])
    def test_the_url_is_requested_as_configured(self, web, url):
        web.on(url or "/", array("a"))
        with partner_of(f"{web.url}{url}") as partner:
            assert names(partner) == ["a"]

    def test_the_next_links_of_the_body_are_followed(self, web, partner):
        web.on("/files", page("a", "b", then="?page=2"))
        web.on("/files?page=2", page("c", then="/more"))
        web.on("/more", page(then=f"{web.url}/last"))
        web.on("/last", page("d"))
        assert names(partner) == ["a", "b", "c", "d"]

    def test_the_next_links_of_the_header_are_followed(self, web, partner):
        web.on("/files", array("a", Link='</files?page=2>; rel="next", </files?page=9>; rel="last"'))
        web.on("/files?page=2", page("b", Link="<?page=3>; rel=next"))
        web.on("/files?page=3", array("c", Link='</files>; rel="first"'))
        assert names(partner) == ["a", "b", "c"]

    def test_relative_links_are_resolved_against_the_redirected_url(self, web, other):
        web.on("/files", Reply(302, headers={"Location": f"{other.url}/a/b"}))
        other.on("/a/b", page("a", then="c"))
        other.on("/a/c", page("b"))
        with partner_of(f"{web.url}/files", allow=[other.entry]) as partner:
            assert names(partner) == ["a", "b"]

    def test_a_page_that_fails_for_a_while_is_retried(self, web, partner):
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", *[Reply(503)] * 3, page("b"))
        assert names(partner) == ["a", "b"]

    def test_links_in_a_circle_are_reported(self, web, partner):
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", page("b", then="/files"))
        with pytest.raises(
            PartnerError, match=f"^{web.url}/files: the listing has more than 1,000 pages, or links in a circle"
        ):
            names(partner)
        assert len(web.requests) == 2

    def test_the_number_of_pages_is_limited(self, web, partner, monkeypatch):
        monkeypatch.setattr(http_listing, "MAX_PAGES", 3)
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", page("b", then="?page=3"))
        web.on("/files?page=3", page("c"), page("c", then="?page=4"))
        assert names(partner) == ["a", "b", "c"]
        with pytest.raises(PartnerError, match="more than 3"):
            names(partner)
        assert "/files?page=4" not in web.paths

    def test_the_size_of_all_pages_together_is_limited(self, web, partner, monkeypatch):
        pages = [page("a", then="?page=2"), page("b")]
        web.on("/files", pages[0])
        web.on("/files?page=2", pages[1])
        total = sum(len(reply.body) for reply in pages)
        monkeypatch.setattr(http_listing, "MAX_BYTES", total)
        assert names(partner) == ["a", "b"]
        monkeypatch.setattr(http_listing, "MAX_BYTES", total - 1)
        with pytest.raises(PartnerError, match=f"its listing is larger than {total - 1} bytes"):
            names(partner)

    @pytest.mark.parametrize(
        "then", ["http://169.254.169.254/", "http://127.0.0.2/", "gopher://127.0.0.1/", "//10.0.0.1/"]
    )
    def test_a_link_to_a_refused_address_is_not_followed(self, web, partner, then):
        web.on("/files", page("a", then=then))
        with pytest.raises(OutboundRefused):
            names(partner)

    def test_a_link_to_another_port_is_not_followed(self, web, other, partner):
        web.on("/files", array("a", Link=f'<{other.url}/files>; rel="next"'))
        with pytest.raises(OutboundRefused):
            names(partner)
        assert other.requests == []

    def test_an_invalid_link_is_reported(self, web, partner):
        web.on("/files", page("a", then="http://[::1/"))
        with pytest.raises(PartnerError, match=f"{web.url}/files: links to an invalid URL"):
            names(partner)

    def test_credentials_are_sent_to_their_own_origin_only(self, web, other):
        web.on("/files", page("a", then="?page=2"))
        web.on("/files?page=2", page("b", then=f"{other.url}/files"))
        other.on("/files", page("c", then=f"{web.url}/last"))
        web.on("/last", page("d"))
        with partner_of(f"{web.url}/files", allow=[other.entry], credentials=Credentials(token="hush")) as partner:
            assert names(partner) == ["a", "b", "c", "d"]
        assert [request.headers.get("authorization") for request in web.requests] == ["Bearer hush"] * 3
        assert [request.headers.get("authorization") for request in other.requests] == [None]

    @pytest.mark.parametrize(
        ("listing", "message"),
        [
            (b"", r"\(whole\): Invalid JSON"),
            (b"<html>", r"\(whole\): Invalid JSON"),
            (b"{", r"\(whole\): Invalid JSON"),
            (b'"a"', r"\(whole\): Input should be a valid"),
            (b"{}", "files: Field required"),
            (b'{"files": {}}', "files: "),
            (b'{"files": [], "next": 2}', "next: "),
            (b'["a"]', "0: "),
            (b'[{"size": 1}]', "0.name: Field required"),
            (b'{"files": [{"name": "a", "size": -1}]}', "files.0.size: "),
            (b'[{"name": "../a"}]', "0.name: "),
            (b'[{"name": "/a"}]', "0.name: "),
            (b'[{"name": ""}]', "0.name: "),
            (b'[{"name": "a", "modified": "yesterday"}]', "0.modified: "),
        ],
    )
    def test_a_malformed_listing_is_reported_with_the_field(self, web, partner, listing, message):
        web.on("/files", Reply(body=listing))
        with pytest.raises(PartnerError, match=f"^{web.url}/files: not a listing of files: {message}"):
            names(partner)

    @pytest.mark.parametrize("status", [204, 401, 403, 404, 410])
    def test_an_unexpected_status_is_reported(self, web, partner, status):
        web.on("/files", Reply(status))
        with pytest.raises(PartnerError, match=f"^{web.url}/files: answered {status}, where 200 is expected"):
            names(partner)


class TestHtml:
    @pytest.fixture(autouse=True)
    def _accept_head_requests(self, web):
        web.heads = 200

    @pytest.fixture
    def partner(self, web):
        with partner_of(f"{web.url}/files", listing="html") as partner:
            yield partner

    def test_the_files_of_the_example_server_are_listed(self, tmp_path):
        with PartnerServer(tmp_path) as server, partner_of(server.url, listing="html") as partner:
            for name in ("2013-03-08 a&b#?%41.csv", "2013-03-09.csv", "2013-03-10.csv"):
                server.put(name, "x")
            listed = partner.list(FilePattern("{date}*.csv"), DAYS)
            assert [file.name for file in listed] == ["2013-03-08 a&b#?%41.csv", "2013-03-09.csv"]
            assert [(file.size, file.etag) for file in listed] == [(1, server.listing()[0]["etag"])] * 2

    @pytest.mark.parametrize("url", ["", "/", "/files", "/files/", "/files?key=1"])
    def test_the_index_page_of_the_folder_is_requested(self, web, url):
        path, _, query = url.rstrip("/").partition("?")
        web.on(f"{path}/{'?' if query else ''}{query}", index("2013-03-08"))
        with partner_of(f"{web.url}{url}", listing="html") as partner:
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

    def test_the_size_of_an_index_page_is_limited(self, web, partner, monkeypatch):
        monkeypatch.setattr(http_listing, "MAX_INDEX_BYTES", 100)
        web.on("/files/", Reply(body=b" " * 100), Reply(body=b" " * 101))
        assert names(partner) == []
        with pytest.raises(PartnerError, match="larger than 100 bytes"):
            names(partner)


class TestWithoutListing:
    @pytest.fixture
    def partner(self, web):
        with partner_of(f"{web.url}/files", files="{date:%Y}/{date}.csv", listing="none") as partner:
            yield partner

    def requests(self, web: Web) -> list[tuple[str, str, str | None]]:
        return [(request.method, request.path, request.headers.get("range")) for request in web.requests]

    def list(self, partner: HttpPartner, pattern: str = "{date:%Y}/{date}.csv") -> list[ListedFile]:
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

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_denied_request_is_reported(self, web, partner, status):
        web.on("/files/2013/2013-03-08.csv", Reply(status))
        with pytest.raises(PartnerError, match=f"answered {status}"):
            self.list(partner)

    def test_redirects_are_followed_and_temporary_failures_retried(self, web, partner):
        web.on("/files/2013", Reply(503), Reply(302, headers={"Location": "/there"}))
        web.on("/there", Reply(429), Reply(body=b"hello"))
        assert self.list(partner, "{date:%Y}") == [ListedFile(name="2013", size=5)]
        assert {request.method for request in web.requests} == {"HEAD"}

    def test_the_files_of_the_example_server_are_listed(self, tmp_path):
        with PartnerServer(tmp_path) as server, partner_of(server.url, files="{date}", listing="none") as partner:
            server.put("2013-03-09", "hello")
            (file,) = self.list(partner, "{date}")
            assert (file.name, file.size, file.etag) == ("2013-03-09", 5, server.listing()[0]["etag"])
