"""Pages of a JSON listing, in blocks of any size, against the parser of the standard library."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import PartnerError
from slackwater.receiver.connectors.connector import ListedFile
from slackwater.receiver.connectors.json_page import MAX_VALUE, read_json_page

pytestmark = pytest.mark.unit

URL = "https://files.example/list"
ANY, WITH_A = re.compile(".*"), re.compile(".*a.*")

names = st.text(alphabet='ab é😀/"\\{}[],:', min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(names, children, max_size=3),
    max_leaves=5,
)
files = st.lists(
    st.fixed_dictionaries(
        {"name": names}, optional={"size": st.integers(0, 2**63), "etag": names, "owner": json_values}
    ),
    max_size=4,
)


def blocks(text: str, size: int) -> list[bytes]:
    body = text.encode()
    return [body[start : start + size] for start in range(0, len(body), size)]


@given(
    files=files,
    others=st.dictionaries(names, json_values, max_size=2),
    link=st.none() | names,
    indent=st.sampled_from([None, 0, 2]),
    escaped=st.booleans(),
    size=st.integers(1, 40),
)
def test_a_page_in_blocks_of_any_size_is_read_as_a_whole(*, files, others, link, indent, escaped, size):
    wanted = [entry for entry in files if WITH_A.fullmatch(entry["name"])]
    before = dict(list(others.items())[:1])
    page = {**before, "files": files, "next": link, **others}
    text = json.dumps(page, indent=indent, ensure_ascii=escaped)
    try:
        expected = [ListedFile.model_validate(entry) for entry in wanted]
    except ValueError:
        with pytest.raises(PartnerError, match=f"^{URL}: not a listing of files: files"):
            read_json_page(URL, blocks(text, size), WITH_A, found=0)
    else:
        assert read_json_page(URL, blocks(text, size), WITH_A, found=0) == (expected, link)
        array = read_json_page(URL, blocks(json.dumps(files, indent=indent), size), WITH_A, found=0)
        assert array == (expected, None)


@given(text=st.text(alphabet='[]{}",:a1 \n', max_size=30), size=st.integers(1, 5))
def test_only_json_is_accepted(text, size):
    try:
        read_json_page(URL, blocks(text, size), ANY, found=0)
    except PartnerError:
        return
    json.loads(text)


def test_a_value_as_large_as_the_limit_is_read_and_a_larger_one_is_refused():
    def page(characters: int) -> list[bytes]:
        return blocks(json.dumps([{"name": "a", "x": "y" * characters}]), 2**16)

    assert len(read_json_page(URL, page(MAX_VALUE - 100), ANY, found=0).files) == 1
    with pytest.raises(PartnerError, match=r"0: Invalid JSON: .*, or a value of more than 1,048,576 characters"):
        read_json_page(URL, page(MAX_VALUE + 2**16), ANY, found=0)


@pytest.mark.parametrize("text", ["[1", "[12, 3]", '{"next": 12', '{"files": [tru', '["' + "a" * 10])
def test_a_page_that_ends_early_or_has_other_values_is_refused_whatever_its_blocks(text):
    for size in range(1, len(text) + 1):
        with pytest.raises(PartnerError, match="not a listing of files"):
            read_json_page(URL, blocks(text, size), ANY, found=0)


@pytest.mark.parametrize("number", ["0.5", "-12.25e-10", "1E+3", "123", "-0"])
def test_a_number_may_be_cut_anywhere(number):
    text = f'{{"x": {number}, "files": [{{"name": "a", "x": {number}}}], "next": null}}'
    for size in range(1, len(text) + 1):
        assert len(read_json_page(URL, blocks(text, size), ANY, found=0).files) == 1


def test_an_integer_with_too_many_digits_is_refused():
    with pytest.raises(PartnerError, match="0: Invalid JSON: it contains a number of thousands of digits"):
        read_json_page(URL, [b'[{"name": "a", "size": ' + b"9" * 5_000 + b"}]"], ANY, found=0)
