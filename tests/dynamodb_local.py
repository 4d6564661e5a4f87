"""AWS's DynamoDB Local: a second implementation of DynamoDB. `python -m tests.dynamodb_local` fetches it."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from slackwater.local.emr.spark import spark_home

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".slackwater" / "dynamodb"
IS_SUPPORTED = (platform.system(), platform.machine()) == ("Linux", "x86_64")
"""Whether the lock file has DynamoDB Local's SQLite library for this platform."""

_LOCK_FILE = ROOT / "requirements" / "dynamodb-local.txt"
_SETTINGS = """
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_JAVA = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if "JAVA_HOME" in os.environ else "java"
_START_SECONDS = 60


class _Artefact(NamedTuple):
    sha256: str
    organisation: str
    name: str
    version: str
    type: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.{self.type}"

    @property
    def dependency(self) -> str:
        """The artefact as Ivy reads it."""
        return (
            f'<dependency org="{self.organisation}" name="{self.name}" rev="{self.version}" transitive="false">'
            f'<artifact name="{self.name}" type="{self.type}" ext="{self.type}"/></dependency>'
        )


def is_fetched() -> bool:
    """Whether `fetch` has stored the artefacts of the current lock file."""
    marker = FOLDER / "complete"
    return marker.exists() and marker.read_bytes() == _LOCK_FILE.read_bytes()


def fetch() -> None:
    """Fetch the artefacts of the lock file with the Ivy of PyPI's Spark. Raises `RuntimeError`."""
    lines = [line for line in _LOCK_FILE.read_text().splitlines() if not line.startswith("#")]
    artefacts = [_Artefact(line.split()[0], *line.split()[1].split(":")) for line in lines]
    (ivy,) = (spark_home() / "jars").glob("ivy-*.jar")
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        (scratch / "settings.xml").write_text(_SETTINGS)
        (scratch / "ivy.xml").write_text(
            '<ivy-module version="2.0"><info organisation="slackwater" module="tests"/><dependencies>'
            f"{''.join(artefact.dependency for artefact in artefacts)}</dependencies></ivy-module>"
        )
        command = [_JAVA, "-cp", str(ivy), "org.apache.ivy.Main", "-settings", "settings.xml", "-ivy", "ivy.xml"]
        command += ["-cache", "cache", "-retrieve", "files/[artifact]-[revision].[ext]"]
        process = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if process.returncode:
            raise RuntimeError(f"DynamoDB Local could not be fetched:\n{(process.stdout + process.stderr)[-2000:]}")
        for artefact in artefacts:
            actual = hashlib.sha256((scratch / "files" / artefact.file).read_bytes()).hexdigest()
            if actual != artefact.sha256:
                raise RuntimeError(f"{artefact.file} has the SHA-256 {actual}, and {_LOCK_FILE.name} another one")
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.parent.mkdir(exist_ok=True)
        shutil.move(scratch / "files", FOLDER)
    # Written last: without it, the next call fetches everything again.
    shutil.copyfile(_LOCK_FILE, FOLDER / "complete")


@contextmanager
def serve() -> Iterator[str]:
    """Run DynamoDB Local, with its data in memory, until the block ends. The result is its endpoint."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The compiler's second tier costs a short process more than it saves.
    command = [_JAVA, "-XX:TieredStopAtLevel=1", f"-Djava.library.path={FOLDER}", "-cp", str(FOLDER / "*")]
    command += ["com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-inMemory", "-disableTelemetry"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "-port", str(port)], stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(process, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the server accepts connections. Raises `RuntimeError`."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("DynamoDB Local did not start")


if __name__ == "__main__":
    if not IS_SUPPORTED:
        sys.stdout.write("DynamoDB Local is not fetched for this platform: the tests with it are skipped\n")
    elif not is_fetched():
        fetch()
