"""Paths of a partner's files fit into every place where AWS stores them."""

from __future__ import annotations

import re
from types import SimpleNamespace

import httpx
import pytest

from slackwater.errors import PartnerError
from slackwater.receiver.connectors.connector import MAX_PATH_BYTES, listed_file
from slackwater.receiver.connectors.http_listing import request_each_file
from slackwater.receiver.connectors.json_page import read_json_page

pytestmark = pytest.mark.unit

LONGEST = ["x" * 640, "ü" * 320, "\u6f6e" * 213 + "x", "\U0001f30a" * 160, '"' * 640]
TOO_LONG = [path + "x" for path in LONGEST]


def limit_error(path):
    return rf"has {len(path.encode())} bytes in UTF-8, and the limit is 640"


@pytest.mark.parametrize("path", LONGEST)
def test_a_path_of_the_largest_length_fits_into_the_keys_of_its_records_and_objects(path):
    assert listed_file("sftp://x", path).name == path
    assert len(path.encode()) == MAX_PATH_BYTES <= 1024, "the sort key in DynamoDB"
    assert len(f"landing/source={'s' * 63}/{'0' * 64}/{path}".encode()) <= 1024


@pytest.mark.parametrize("path", TOO_LONG)
def test_a_longer_path_is_refused_with_the_limit_in_bytes(path):
    with pytest.raises(PartnerError, match=rf"^sftp://x: .*{limit_error(path)}: ask the partner to rename the file$"):
        listed_file("sftp://x", path)


@pytest.mark.parametrize("path", TOO_LONG)
def test_a_json_listing_with_a_longer_path_is_refused_with_the_limit_in_bytes(path):
    page = [b'[{"name": "a"}, {"name": "' + path.replace('"', '\\"').encode() + b'"}]']
    with pytest.raises(PartnerError, match=rf"^https://x: not a listing of files: 1\.name: .*{limit_error(path)}"):
        read_json_page("https://x", page, re.compile(".*"), found=0)


def test_a_longer_path_without_a_listing_is_refused_with_the_limit_in_bytes():
    server = httpx.MockTransport(lambda _: httpx.Response(200, headers={"content-length": "3"}))
    with httpx.Client(transport=server) as http:

        def read(url, reader, *, method="GET", headers=None):
            with http.stream(method, url, headers=headers) as response:
                return reader(response)

        session = SimpleNamespace(read=read)
        files = request_each_file(session, lambda name: f"https://x/{name}", [TOO_LONG[0]])
        with pytest.raises(PartnerError, match=rf"^https://x/x+: .*{limit_error(TOO_LONG[0])}"):
            list(files)
