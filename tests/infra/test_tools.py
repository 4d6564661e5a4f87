"""The CDK's command line is installed by the npm of our Node.js, from the lock."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from slackwater.deploy import tools
from slackwater.errors import CloudError

pytestmark = pytest.mark.infra


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Deployed files whose lock names a package in the same folder, so that npm needs no network."""
    locks = tmp_path / "requirements" / "tools"
    (locks / "cdk").mkdir(parents=True)
    package = {"name": "cdk", "version": "1.0.0", "bin": {"cdk": "cdk.js"}}
    (locks / "cdk" / "package.json").write_text(json.dumps(package))
    (locks / "cdk" / "cdk.js").write_text("#!/usr/bin/env node\n")
    write_locks(locks, "cdk")
    monkeypatch.setattr(tools, "deployed_files", lambda: tmp_path)
    monkeypatch.setenv("SLACKWATER_CACHE", str(tmp_path / "cache"))
    return locks


def write_locks(locks: Path, name: str) -> None:
    root = {"name": "tools", "dependencies": {name: "file:cdk"}}
    link, package = {"resolved": "cdk", "link": True}, {"version": "1.0.0", "bin": {"cdk": "cdk.js"}}
    packages = {"": root, "cdk": package, f"node_modules/{name}": link}
    lock = {"name": "tools", "lockfileVersion": 3, "requires": True, "packages": packages}
    (locks / "package.json").write_text(json.dumps(root))
    (locks / "package-lock.json").write_text(json.dumps(lock))


def test_the_tools_are_installed_once_for_each_lock(locks: Path) -> None:
    assert not tools.is_installed()
    tools.install_tools()
    assert tools.is_installed()
    assert tools.cdk_program().is_file()
    before = tools.cdk_program().lstat().st_ino
    tools.install_tools()
    assert tools.cdk_program().lstat().st_ino == before
    (locks / "package-lock.json").write_text((locks / "package-lock.json").read_text() + "\n")
    assert not tools.is_installed()
    tools.install_tools()
    assert tools.is_installed()


def test_a_failure_names_npms_reason_and_leaves_nothing(
    locks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (locks / "package.json").write_text('{"name": "tools", "dependencies": {"no-such-package": "1.0.0"}}')
    with pytest.raises(CloudError, match=r"(?s)npm could not install the CDK's command line:.*no-such-package@1\.0\.0"):
        tools.install_tools()
    assert not [path for path in (locks.parents[1] / "cache").iterdir() if path.name != "install.lock"]
    monkeypatch.setattr(sys, "argv", ["tools"])
    assert tools.main() == 1
    assert "npm could not install" in capsys.readouterr().err
