# ruff: noqa: E501 - pages are as servers write them
from __future__ import annotations

import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import pytest

from slackwater.receiver.connectors import http_listing
from slackwater.receiver.connectors.http_listing import MAX_INDEX_BYTES

pytestmark = pytest.mark.unit

FOLDER_URL = "https://files.example/data/flights/"


def index_names(page: str, url: str) -> list[str]:
    """The names, each once."""
    return list(dict.fromkeys(http_listing.index_names(page, url)))


# As the servers write them, shortened.
APACHE_TABLE = """<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">
<html><head><title>Index of /data/flights</title></head><body><h1>Index of /data/flights</h1>
  <table>
   <tr><th valign="top"><img src="/icons/blank.gif" alt="[ICO]"></th><th><a href="?C=N;O=D">Name</a></th>
       <th><a href="?C=M;O=A">Last modified</a></th><th><a href="?C=S;O=A">Size</a></th></tr>
   <tr><td><img src="/icons/back.gif" alt="[PARENTDIR]"></td><td><a href="/data/">Parent Directory</a></td>
       <td>&nbsp;</td><td align="right">  - </td></tr>
   <tr><td><img src="/icons/folder.gif" alt="[DIR]"></td><td><a href="2013/">2013/</a></td>
       <td align="right">2013-03-08 12:00  </td><td align="right">  - </td></tr>
   <tr><td><img src="/icons/unknown.gif" alt="[   ]"></td><td><a href="flights-2013-03-08.csv">flights-2013-03-08.csv</a></td>
       <td align="right">2013-03-08 12:00  </td><td align="right">1.2M</td></tr>
   <tr><td><img src="/icons/unknown.gif" alt="[   ]"></td><td><a href="a%20b%26c.csv">a b&amp;c.csv</a></td>
       <td align="right">2013-03-08 12:00  </td><td align="right"> 12 </td></tr>
  </table>
<address>Apache/2.4.57 (Debian) Server at files.example Port 443</address></body></html>"""

APACHE_PRE = """<pre><img src="/icons/blank.gif" alt="Icon "> <a href="?C=N;O=D">Name</a> <a href="?C=M;O=A">Last modified</a><hr>
<img src="/icons/back.gif" alt="[DIR]"> <a href="/data/">Parent Directory</a>
<img src="/icons/text.gif" alt="[TXT]"> <a href="flights-2013-03-08.csv">flights-2013-03-08.csv</a>  2013-03-08 12:00  1.2M
<img src="/icons/text.gif" alt="[TXT]"> <a href="a%20b%26c.csv">a b&amp;c.csv</a>                    2013-03-08 12:00   12
<hr></pre>"""

NGINX = """<html>\r
<head><title>Index of /data/flights/</title></head>\r
<body>\r
<h1>Index of /data/flights/</h1><hr><pre><a href="../">../</a>\r
<a href="2013/">2013/</a>                                              08-Mar-2013 12:00                   -\r
<a href="flights-2013-03-08.csv">flights-2013-03-08.csv</a>                             08-Mar-2013 12:00             1234567\r
<a href="a%20b%26c.csv">a b&amp;c.csv</a>                                          08-Mar-2013 12:00                  12\r
</pre><hr></body>\r
</html>\r
"""

LIGHTTPD = """<table summary="Directory Listing" cellpadding="0" cellspacing="0">
<thead><tr><th class="n">Name</th><th class="m">Last Modified</th><th class="s">Size</th><th class="t">Type</th></tr></thead>
<tbody>
<tr class="d"><td class="n"><a href="../">..</a>/</td><td class="m">&nbsp;</td><td class="s">- &nbsp;</td><td class="t">Directory</td></tr>
<tr class="d"><td class="n"><a href="2013/">2013</a>/</td><td class="m">2013-Mar-08 12:00:00</td><td class="s">- &nbsp;</td></tr>
<tr><td class="n"><a href="flights-2013-03-08.csv">flights-2013-03-08.csv</a></td><td class="m">2013-Mar-08 12:00:00</td></tr>
<tr><td class="n"><a href="a%20b%26c.csv">a b&amp;c.csv</a></td><td class="m">2013-Mar-08 12:00:00</td><td class="s">0.1K</td></tr>
</tbody></table><div class="foot">lighttpd/1.4.69</div>"""


@pytest.mark.parametrize(
    "page", [APACHE_TABLE, APACHE_PRE, NGINX, LIGHTTPD], ids=["Apache's table", "Apache's list", "nginx", "lighttpd"]
)
def test_index_pages_of_common_servers_are_read(page):
    assert index_names(page, FOLDER_URL) == ["flights-2013-03-08.csv", "a b&c.csv"]


def test_index_pages_of_the_python_server_are_read(tmp_path):
    names = ["a b&c.csv", "flights-2013-03-08.csv", "q?#%41;=.csv", "ü.csv", "'quoted' <b>\".csv"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "2013").mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        with urlopen(url) as response:
            page = response.read().decode()
        server.shutdown()
        thread.join()
    assert sorted(index_names(page, url)) == sorted(names)


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("a.csv", "a.csv"),
        ("./a.csv", "a.csv"),
        ("/data/flights/a.csv", "a.csv"),
        ("//files.example/data/flights/a.csv", "a.csv"),
        ("https://files.example/data/flights/a.csv", "a.csv"),
        ("../flights/a.csv", "a.csv"),
        ("/data/%66lights/a.csv", "a.csv"),
        (" a.csv\n", "a.csv"),
        ("a&amp;b.csv", "a&b.csv"),
        ("a%2525.csv", "a%25.csv"),
        ("%C3%BC.csv", "ü.csv"),
        ("%3Fq.csv", "?q.csv"),
        ("%2e%2ehidden", "..hidden"),
    ],
)
def test_links_to_files_of_the_folder_are_names(link, name):
    assert index_names(f'<a href="{link}">x</a>', FOLDER_URL) == [name]


@pytest.mark.parametrize(
    "link",
    [
        "",
        "/",
        "./",
        "../",
        "..",
        ".",
        "/data/",
        "/data/flights/",
        "/data/flights",
        "/data/flightsmore/a.csv",
        "/etc/passwd",
        "../../etc/passwd",
        "2013/",
        "2013/a.csv",
        "a%2Fb.csv",
        "%2e%2e%2fa.csv",
        "?C=N;O=D",
        "a.csv?download=1",
        "#top",
        "a.csv#top",
        "http://files.example/data/flights/a.csv",
        "https://files.example:8443/data/flights/a.csv",
        "https://other.example/data/flights/a.csv",
        "//other.example/data/flights/a.csv",
        "https://user@files.example/data/flights/a.csv",
        "mailto:files@files.example",
        "javascript:alert(1)",
        "data:text/csv,a",
        "file:///data/flights/a.csv",
        "http://[::1/a.csv",
        "%FF.csv",
    ],
)
def test_other_links_are_ignored(link):
    assert index_names(f'<a href="{link}">x</a>', FOLDER_URL) == []


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("", []),
        ("no page at all", []),
        ('<a href="a.csv">', ["a.csv"]),
        ('<A HREF="a.csv">x</A>', ["a.csv"]),
        ("<a href=a.csv>x</a>", ["a.csv"]),
        ('<a class="n" title="b.csv" href="a.csv">x</a>', ["a.csv"]),
        ('<a href="b.csv">x</a><a href="a.csv">x</a><a href="b.csv">again</a>', ["b.csv", "a.csv"]),
        ("<a>no link</a><a href>nor this</a>", []),
        ('<!-- <a href="a.csv">x</a> -->', []),
        ("<script>document.write('<a href=\"a.csv\">x</a>')</script>", []),
        ('<img src="a.png"><link href="a.css"><area href="b.csv">', []),
        ('<a href="a.csv"', []),
        ("<a\nhref\t=\n'a.csv'>", ["a.csv"]),
        ("<a href=it's.csv>x</a>", ["it's.csv"]),
        ("<a href=a.csv/>", []),
        ('<a href="a.csv"title=x>', ["a.csv"]),
        ('<a title="<a href=b.csv>" href="a.csv">x</a>', ["a.csv"]),
        ("<a title='\"' href=\"a'b.csv\">", ["a'b.csv"]),
        ('<a data-href="b.csv" hrefs="c.csv" href="a.csv">', ["a.csv"]),
        ('<abbr href="b.csv"><a-b href="c.csv">', []),
        ('1 < 2 <a href="a.csv">', ["a.csv"]),
        ('<!-- -- > <a href="b.csv">', []),
        ('<SCRIPT src=x>"</a><a href=b.csv>"</Script><a href="a.csv">', ["a.csv"]),
        ('<style>a{}</style><a href="a.csv">', ["a.csv"]),
        ('<a href="&#%s;"><a href="a.csv">' % ("9" * 5000), ["a.csv"]),
    ],
)
def test_unusual_html_is_read(page, names):
    assert index_names(page, FOLDER_URL) == names


BROKEN_PIECES = [
    "<a ",
    "<a <",
    "<a href=",
    '<a href="',
    "<a href='x\" ",
    "<a = ",
    '"',
    "<",
    "<!--",
    "<!---",
    "<script ",
    "<script></script",
    "<a href='&#",
    "<a title='\"<b title=\"'",
]


def broken(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


@pytest.mark.parametrize("piece", BROKEN_PIECES)
def test_a_broken_page_is_parsed_in_linear_time(piece):
    def work(size: int) -> float:
        page = broken(piece, size)
        spent = []
        for _ in range(5):
            start = time.thread_time()
            assert index_names(page, FOLDER_URL) == []
            spent.append(time.thread_time() - start)
        return max(min(spent), 1e-4)

    # 32 times the page: about 32 times the work, where it would be 1,000 times if each piece were compared with all
    # that follow.
    assert work(2**18) < 200 * work(2**13)


@pytest.mark.timeout(60)  # A quadratic parser needs hours. This is the slowest piece; the test above has all.
def test_the_largest_broken_page_is_parsed_in_time():
    assert index_names(broken("<a ", MAX_INDEX_BYTES), FOLDER_URL) == []


@pytest.mark.timeout(60)  # A parser that builds a tree needs minutes and gigabytes for such pages.
@pytest.mark.parametrize(
    "page",
    [
        "<p>" + "".join(f"<b id={number}>" for number in range(20_000)) + "<p>x" * 20_000,
        "<a " + " ".join(f"x{number}" for number in range(160_000)) + ">",
        "<div><table>" * 80_000,
    ],
    ids=["unclosed formatting", "attributes", "nested tables"],
)
def test_pages_that_slow_down_tree_builders_are_parsed_in_time(page):
    assert index_names(f'{page}<a href="a.csv">x</a>', FOLDER_URL) == ["a.csv"]


def test_the_url_of_the_page_may_be_quoted():
    assert index_names('<a href="a.csv">x</a>', "https://files.example/my%20files/2013/") == ["a.csv"]
