"""The documentation: links lead somewhere, and a page is read in ten minutes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "src/**/*.md", "examples/**/*.md"]
PAGES = sorted(path for pattern in FOLDERS for path in ROOT.glob(pattern))
# People look things up in these; nobody reads them from the first line to the last.
REFERENCE = {"docs/architecture.md", "docs/benchmarks.md", "docs/reliability.md"}


def prose(page):
    """Return the text of a page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """Return the anchors of the headings of a page, as GitHub and the site write them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    """Return the relative links of a page that lead to no file, or to no heading of their page."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = page.parent / name if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A title: `b`\n```\n# no heading\n[x](none.md)\n```\n[a](#a-title-b) [b](#b) [c](c.md) [d](https://d)"
    )
    assert broken_links(page) == ["#b", "c.md"]


@pytest.mark.parametrize("folder", ["src", "infra", "lambdas", "glue_jobs", "examples", "benchmarks", "scripts"])
def test_every_page_that_code_names_exists(folder):
    modules = [path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"docs/[\w/-]+\.(?:md|json)", "\n".join(modules)))
    named.discard("docs/runbooks/NAME.md")
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_list_of_decisions_has_each_with_its_title():
    decisions = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "decisions").glob("*.md")}
    rows = re.findall(r"^\| (\d+) \| \[(.*)\]\((.*)\) \|$", decisions.pop("README.md"), flags=re.MULTILINE)
    assert {name: f"# {number}. {title}" for number, title, name in rows} == {
        name: text.partition("\n")[0] for name, text in decisions.items()
    }


def test_a_page_for_users_is_read_in_ten_minutes():
    words = {str(page.relative_to(ROOT)): len(page.read_text(encoding="utf-8").split()) for page in PAGES}
    long = {name for name, count in words.items() if count > 2400} - {"CHANGELOG.md"}
    assert long == REFERENCE
