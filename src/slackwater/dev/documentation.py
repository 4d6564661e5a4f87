"""The documentation as a site with a search, for `slackwater docs serve`.

The pages are written for readers of the repository. Zensical, which makes the site, reads some of their Markdown
differently, so it gets adapted copies.
"""

from __future__ import annotations

import importlib.util
import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from slackwater.errors import InputError, SlackwaterError
from slackwater.project.installation import deployed_files

# Zensical, as the extra `docs` of pyproject.toml has it.
REQUIREMENT = "zensical>=0.0.73,<0.1"
_HOST = "127.0.0.1"
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINK = re.compile(r"\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)")


def build_site(pages: Path, folder: Path) -> Path:
    """Build the site of a folder of pages, and return its folder, `folder`/site. `folder` is an empty folder.

    Raises `InputError` if Zensical is not installed, and `SlackwaterError` if a link of a page leads nowhere.
    """
    if importlib.util.find_spec("zensical") is None:
        raise InputError(f'Zensical, which builds the site, is not installed: pip install "{REQUIREMENT}"')
    shutil.copytree(pages, folder / "docs", ignore=shutil.ignore_patterns("site.yml"))
    for page in (folder / "docs").rglob("*.md"):
        name = page.relative_to(folder / "docs").as_posix()
        page.write_text(_adapted(page.read_text(encoding="utf-8"), name), encoding="utf-8")
    settings = yaml.safe_load((pages / "site.yml").read_text(encoding="utf-8"))
    settings["nav"] = list(_navigation(settings["nav"], pages))
    (folder / "mkdocs.yml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SlackwaterError(f"the site cannot be built:\n{_COLOUR.sub('', done.stdout + done.stderr)}")
    return folder / "site"


def site_pages() -> Path:
    """Return the folder of the documentation's pages, in a clone or in an installed wheel."""
    return deployed_files() / "docs"


@contextmanager
def served(site: Path, port: int | None) -> Iterator[ThreadingHTTPServer]:
    """Return a server of a site on this machine, at that port or a free one; `serve_forever` answers requests.

    Raises `InputError` if the port cannot be used.
    """
    try:
        server = _Server((_HOST, port or 0), partial(_QuietHandler, directory=str(site)))
    except OSError as error:
        raise InputError(f"--port: {port} cannot be used ({error.strerror}): name another one, or none") from error
    with server:
        yield server


class _Server(ThreadingHTTPServer):
    """Writes nothing about a browser that closes a connection early."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report other errors only."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _QuietHandler(SimpleHTTPRequestHandler):
    """Writes no line for each request."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def _navigation(entries: list[Any], pages: Path) -> Iterator[Any]:
    """Yield the entries, with the pages of a folder in the place of the folder's name."""
    for entry in entries:
        if isinstance(entry, dict):
            yield {title: list(_navigation(below, pages)) for title, below in entry.items()}
        elif entry.endswith("/"):
            names = {path.name for path in (pages / entry).glob("*.md")}
            yield from (entry + name for name in ("README.md", *sorted(names - {"README.md"})))
        else:
            yield entry


def _adapted(text: str, name: str) -> str:
    """Return a page as Zensical needs it. `name` is the path of the page in the folder of pages.

    Files outside of the folder are named, and not linked. A list has an empty line before it, and lists and tables in
    it are indented by four spaces: Zensical's Markdown is that of Python-Markdown, where GitHub needs neither.
    """

    def unlinked(link: re.Match[str]) -> str:
        label, target = link[1], link[2]
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(name), target))
        if re.match(r"[a-z]+:|#", target) or path.startswith("docs/"):
            return link[0]
        return f"`{path}`" if label.strip("`") == path else f"{label} (`{path}`)"

    parts = _FENCED.split(text)
    for index in range(0, len(parts), 2):
        part = _LINK.sub(unlinked, parts[index])
        part = re.sub(r"^ {2,3}(?=\S)", " " * 4, part, flags=re.MULTILINE)
        parts[index] = re.sub(r"^((?![-#|<] |\d+\. |\s).+\n)(?=(?:-|\d+\.) )", r"\1\n", part, flags=re.MULTILINE)
    return "".join(parts)
