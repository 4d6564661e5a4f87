"""The commands that pages, docstrings and messages name exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.unit.test_runbooks import PAGES as RUNBOOKS
from tests.unit.test_runbooks import VALUES, command_line, commands, parse

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
# test_runbooks.py parses the commands of the runbooks.
PAGES = sorted({ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")} - set(RUNBOOKS))
COMMAND = re.compile(r"""^(?:\$ )?(slackwater (?:"[^"]*"|'[^']*'|[^\n"'#>|])*)""", re.MULTILINE)
FOLDERS = ["examples", "glue_jobs", "infra", "lambdas", "mwaa_dags", "src"]


def names(text):
    """Return the commands that a text names, without their sub-commands: `slackwater NAME`, or after a colon."""
    return set(re.findall(r"(?:`|: )slackwater\s+([a-z][a-z-]*)", text))


def test_a_name_is_recognised_also_across_lines():
    text = "run `slackwater\nbackfill`; its log: slackwater logs p, but no sentence about the slackwater library"
    assert names(text) == {"backfill", "logs"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page):
    assert names(page.read_text(encoding="utf-8")) <= set(command_line().commands)
    # A block may also have commands of other programs, and output. A quoted word may have several lines.
    for line in COMMAND.findall("\n".join(commands(page))):
        parse([VALUES.get(word, word) for word in shlex.split(line)])


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_command_in_docstrings_and_messages_exists(folder):
    modules = [path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py")]
    # A string literal that continues on the next line is one string.
    strings = re.sub(r'"\n\s*f?"', "", "\n".join(modules))
    assert names(strings) <= set(command_line().commands)
