"""Positions in a YAML file: of values in every style, and of characters within a string."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slackwater.problems import Problem
from slackwater.validation.yaml_file import YamlFile

pytestmark = pytest.mark.unit

PATH = Path("file.yaml")


def position(text: str, path: tuple[str | int, ...], **problem) -> tuple[int, int]:
    file = YamlFile(PATH, text.encode())
    assert file.problems == []
    file.report(Problem(message="", path=path, **problem))
    (problem,) = file.problems
    return problem.line, problem.column


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("a: 1", ("a",), (1, 4)),
        ("a:   'x'  # why", ("a",), (1, 6)),
        ("a: [x, {b: y}]", ("a", 1, "b"), (1, 12)),
        ("a:\n  - x\n  - y", ("a", 1), (3, 5)),
        ("a:\n  - x\n  - y", ("a",), (1, 1)),
        ("é: x\nü: {😀: y}", ("ü", "😀"), (2, 8)),
        ("a:\r\n  b: x\r\n", ("a", "b"), (2, 6)),
        ("a:\n", ("a",), (1, 1)),
        ("x: 1\na: {b: 2}", ("a", "c"), (2, 1)),
        ("a: 1", ("c", "d", "e"), (1, 1)),
        ("a: &a {b: x}\nc: *a", ("c", "b"), (1, 11)),
        ("a: &a {b: x}\nc: {<<: *a, d: y}", ("c", "b"), (1, 11)),
        ("a: &a {b: x}\nc: {<<: *a, b: y}", ("c", "b"), (2, 16)),
        ("1: {true: x}", (1, True), (1, 11)),
        ("# words\n\n---\na: x", ("a",), (4, 4)),
    ],
)
def test_a_value_is_found_where_it_is_written(text, path, expected):
    assert position(text, path) == expected


def test_the_key_is_shown_if_it_is_the_problem():
    assert position("a: {bb: [x]}", ("a", "bb"), at_key=True) == (1, 5)


@pytest.mark.parametrize("style", ["|", ">", "|-", ">+", "|2", '"', "'", ""])
@pytest.mark.parametrize("indent", [2, 6])
def test_a_character_of_a_string_is_found_in_every_style(style, indent):
    """The words are at positions that are known from the text of the file."""
    words = ["SELECT a", "FROM b", "WHERE c"]
    if style == "|2":
        indent = 2  # which it states
    block = style[:1] in ("|", ">")
    lines = [" " * indent + word for word in words]
    quote = "" if block else style
    text = f"key: {style}\n" + "\n".join(lines) if block else f"key: {quote}{words[0]}\n{lines[1]}\n{lines[2]}{quote}"
    value = yaml.safe_load(text)["key"]
    for word in ("SELECT", "a", "FROM", "b", "WHERE", "c"):
        offset = value.index(word)
        before = value[:offset]
        within = (before.count("\n") + 1, offset - before.rfind("\n"))
        line, column = position(text, ("key",), position=within)
        assert text.splitlines()[line - 1][column - 1 :].startswith(word)


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1), st.booleans())
def test_the_position_in_any_string_is_that_of_its_character_or_of_the_string(text, default_flow_style):
    dumped = yaml.safe_dump({"k": {"v": text}}, allow_unicode=True, default_flow_style=default_flow_style)
    value = yaml.safe_load(dumped)["k"]["v"]
    start = position(dumped, ("k", "v"))
    for index, character in enumerate(value):
        line, column = position(dumped, ("k", "v"), position=(1, index + 1))
        found = dumped.splitlines()[line - 1][column - 1]
        assert (line, column) == start or found == character or character.isspace()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: 1\na: 2\nb: {c: 1, d: 2, c: 3}", [(2, 1, "a"), (3, 17, "b.c")]),
        (b"a: &a {x: 1}\nb: {<<: *a, x: 2}", []),
        (b"- [{x: 1, x: 2}]", [(1, 11, "0.0.x")]),
        (b'1: a\n"1": b\n', []),
    ],
)
def test_duplicate_keys_are_found_in_every_mapping(content, expected):
    assert [(one.line, one.column, one.place) for one in YamlFile(PATH, content).problems] == expected


def test_aliases_of_aliases_are_checked_once():
    """Nine levels of nine aliases are 387 million values."""
    levels = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    levels += [f"{n}: &{n} [{', '.join([f'*{o}'] * 9)}]" for o, n in zip("abcdefgh", "bcdefghi", strict=True)]
    file = YamlFile(PATH, "\n".join([*levels, "z: 1", "z: 2"]).encode())
    assert [problem.place for problem in file.problems] == ["z"]


def test_a_deep_nesting_is_a_problem(recursion_limit):
    (problem,) = YamlFile(PATH, b"[" * recursion_limit).problems
    assert problem.message == "nested too deeply"
