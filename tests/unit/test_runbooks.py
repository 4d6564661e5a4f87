"""The runbooks: their form, and whether their commands exist."""

from __future__ import annotations

import re
import shlex
from functools import cache, partial
from pathlib import Path

import pytest
import typer.main

from slackwater.cli.main import app

pytestmark = pytest.mark.unit

DOCS = Path(__file__).resolve().parents[2] / "docs"
INDEX = DOCS / "runbooks" / "README.md"
PAGES = sorted(set((DOCS / "runbooks").glob("*.md")) - {INDEX})
# A value for each placeholder of which the command line checks the type.
VALUES = {"DATE": "2013-03-10", "NUMBER": "3"}


def commands(page):
    """Return the commands in the fenced blocks of a page, without continued lines and comments."""
    blocks = re.findall(r"^```\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line]


command_line = cache(partial(typer.main.get_command, app))


def parse(words):
    """Parse a command as the command line does, down to its last sub-command, and run nothing."""
    command, name, rest, parent = command_line(), words[0], list(words[1:]), None
    while True:
        context = command.make_context(name, rest, parent=parent)
        if not hasattr(command, "resolve_command"):
            return context.params
        rest, parent = [*context._protected_args, *context.args], context
        name, command, rest = command.resolve_command(context, rest)


@pytest.mark.parametrize("page", [*PAGES, INDEX], ids=lambda page: page.stem)
def test_every_command_of_a_runbook_parses(page):
    found = commands(page)
    assert found
    for line in found:
        assert line.split()[0] in {"slackwater", "aws"}, line
        words = [VALUES.get(word, word) for word in shlex.split(line)]
        if words[0] == "slackwater":
            parse(words)


@pytest.mark.parametrize(
    "line",
    ["slackwater rerun p", "slackwater late relase p", "slackwater runs p --dat 2013-03-10", "slackwater pull"],
)
def test_a_command_that_does_not_exist_does_not_parse(line):
    with pytest.raises(typer.TyperException):
        parse(shlex.split(line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_runbook_says_what_the_alarm_means_where_to_look_what_to_do_and_how_to_verify(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf"# slackwater-{page.stem}(-PIPELINE|-SOURCE|-MACHINE)?", lines[0])
    assert [line for line in lines if line.startswith("## ")] == ["## What it means", "## Look", "## Do", "## Verify"]
    # The commands are those of the default prefix.
    assert "(README.md#choose-the-deployment)" in lines[3]
    assert max(map(len, lines)) <= 120
