"""The site of the documentation: every page is in it, links lead somewhere, and it needs no network."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from slackwater.dev import documentation
from slackwater.dev.documentation import build_site, served, site_pages
from slackwater.errors import SlackwaterError

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]


def pages_of(entries):
    """Return the pages and folders that the navigation names, in its order."""
    for entry in entries:
        if isinstance(entry, dict):
            yield from (page for below in entry.values() for page in pages_of(below))
        else:
            yield entry


@pytest.fixture
def folder(tmp_path):
    """An empty folder for a build."""
    (tmp_path / "build").mkdir()
    return tmp_path / "build"


@pytest.fixture
def write_pages(tmp_path):
    """Write pages, with the settings of a site, and return their folder."""

    def write_pages(**pages):
        folder = tmp_path / "pages"
        folder.mkdir()
        (folder / "site.yml").write_text(
            f"site_name: Test\nuse_directory_urls: false\nnav: {[f'{n}.md' for n in pages]}"
        )
        for name, text in pages.items():
            (folder / f"{name}.md").write_text(text)
        return folder

    return write_pages


def test_each_page_is_in_the_navigation_once():
    named = list(pages_of(yaml.safe_load((site_pages() / "site.yml").read_text())["nav"]))
    listed = [page for page in named if not page.endswith("/")]
    folders = tuple(page for page in named if page.endswith("/"))
    pages = [path.relative_to(site_pages()).as_posix() for path in site_pages().rglob("*.md")]
    assert sorted(listed) == sorted(page for page in pages if not page.startswith(folders))


def test_the_command_serves_a_site_with_a_search_that_loads_nothing_from_elsewhere():
    command = [sys.executable, "-m", "slackwater.cli", "docs", "serve"]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url, remark = process.stdout.readline().strip(), process.stdout.readline()
        assert remark == "Ctrl-C stops it.\n"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        with urlopen(url) as start, urlopen(url + "search.json") as search, urlopen(url + "runbooks/run-failed.html"):
            html = start.read().decode()
            found = json.load(search)["items"]
        assert any("cool_down_hours" in item["text"] for item in found)
        assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+"', html) == []
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0
    finally:
        process.kill()


def test_a_link_that_leads_nowhere_fails_the_build(write_pages, folder):
    pages = write_pages(one="# One\n[a](two.md#a-heading)\n", two="# Two\n")
    with pytest.raises(SlackwaterError, match=r"cannot be built(.|\n)*one\.md:2"):
        build_site(pages, folder)


def test_lists_and_links_of_a_page_are_those_that_github_shows(write_pages, folder):
    text = (
        "# One\nTwo things:\n- a\n  - b\n1 file of [code](../src/a.py), [`docs/one.md`](one.md), [../x.yml](../x.yml)\n"
    )
    html = (build_site(write_pages(one=text), folder) / "one.html").read_text()
    assert re.search(r"<p>Two things:</p>\s*<ul>\s*<li>a\s*<ul>\s*<li>b", html)
    assert "code (<code>src/a.py</code>)" in html
    assert '<a href="one.html"><code>docs/one.md</code></a>' in html


def test_without_the_extra_the_command_names_what_to_install(printed_by, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["docs"] == [documentation.REQUIREMENT]
    message = f'error: Zensical, which builds the site, is not installed: pip install "{extras["docs"][0]}"\n'
    assert printed_by("docs", "serve", code=2).err == message


def test_a_port_that_is_in_use_is_refused(tmp_path):
    with served(tmp_path, None) as first, pytest.raises(SlackwaterError, match=r"--port: .* cannot be used"):
        served(tmp_path, first.server_port).__enter__()
