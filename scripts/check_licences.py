"""Checks the licences of the installed packages: `python scripts/check_licences.py`. `make check` runs it.

`requirements/licences.toml` lists the allowed licences, and packages with another one, each with the reason.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

ALLOWED = Path(__file__).parent.parent / "requirements" / "licences.toml"


def licences(package: metadata.PackageMetadata) -> set[str]:
    """Return the names of all licences in a package's metadata: SPDX names if it has them, else those of PyPI.

    Of an expression, all names are returned, also alternatives.
    """
    if expression := package.get_all("License-Expression"):
        return {name for name in re.split(r"[\s()]+", expression[0]) if name not in {"", "AND", "OR", "WITH"}}
    classifiers = package.get_all("Classifier") or []
    names = {item.rpartition(" :: ")[2] for item in classifiers if item.startswith("License :: ")}
    # This one says that a licence is approved, not which one.
    names.discard("OSI Approved")
    return names or set(filter(None, ["".join(package.get_all("License") or []).strip().partition("\n")[0]]))


def problems(packages: Mapping[str, set[str]], allowed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the packages without a licence that is allowed, with the remedy.

    `packages` has the licences of each package. `allowed` is the content of the file of allowed licences.
    """
    for name, found in sorted(packages.items()):
        accepted = {*allowed["licences"], *allowed["packages"].get(name, {}).get("licences", [])}
        if others := sorted((found or {"unknown"}) - accepted):
            yield (
                f"{name}: {', '.join(others)}: not allowed: remove the package, or add it with its licence and the "
                f"reason to requirements/{ALLOWED.name}"
            )


def main() -> int:
    """Print all problems; return 1 if there are any."""
    installed = {
        package.name.lower(): licences(package.metadata)
        for package in metadata.distributions()
        if package.name != "slackwater"
    }
    found = list(problems(installed, tomllib.loads(ALLOWED.read_text(encoding="utf-8"))))
    sys.stdout.write("".join(f"{problem}\n" for problem in found))
    # Without packages nothing was checked.
    return 1 if found or not installed else 0


if __name__ == "__main__":
    sys.exit(main())
