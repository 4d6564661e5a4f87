"""One attempt of a job run: fetch what it names, run spark-submit, keep its logs."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from slackwater.errors import CloudError, InputError, SlackwaterError
from slackwater.local.emr import guard, spark
from slackwater.local.emr.failure import last_error
from slackwater.local.emr.objects import Objects
from slackwater.local.emr.submit import Archive, Submission

_LOGS = ("stdout", "stderr")


class Outcome(NamedTuple):
    """How an attempt ended."""

    exit_code: int
    """0 for success; -1 when the driver was never started."""
    error: str
    """The driver's last error, or why it could not be started; empty for success."""
    stopped: bool = False
    """Whether it ended because it was told to."""


@dataclass
class Stop:
    """Tells a running attempt to end."""

    _asked: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        """End the attempt as soon as can be."""
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Whether the attempt was told to end."""
        return self._asked.is_set()


class SparkRunner:
    """Runs attempts as spark-submit processes of this machine."""

    def __init__(self, *, endpoint: str, jars: Path, folder: Path) -> None:
        self._endpoint, self._jars, self._folder = endpoint, jars.resolve(), folder
        self._objects = Objects(endpoint)
        self._unpacking = threading.Lock()

    def folder(self, job_run: str) -> Path:
        """Return where the driver's `stdout` and `stderr` are kept."""
        return self._folder / job_run

    def run(self, job_run: str, submission: Submission, *, log_prefix: str | None, stop: Stop) -> Outcome:
        """Run one attempt to its end, or until `stop`; copy its logs below the address `log_prefix`, if given."""
        folder = self.folder(job_run)
        work = folder / "work"
        shutil.rmtree(folder, ignore_errors=True)
        work.mkdir(parents=True)
        (folder / "tmp").mkdir()
        try:
            command = self._prepare(folder, work, submission)
        except SlackwaterError as error:
            (folder / "stderr").write_text(f"{error}\n", encoding="utf-8")
            outcome = Outcome(-1, str(error))
        else:
            outcome = self._submit(folder, work, command, submission, stop)
        self._keep_logs(folder, log_prefix)
        for scratch in (folder / "tmp", work):
            shutil.rmtree(scratch, ignore_errors=True)
        return outcome

    def _prepare(self, folder: Path, work: Path, submission: Submission) -> list[str]:
        """Fetch what the submission names; return its command line."""
        if not any(self._jars.glob("*.jar")):
            raise CloudError(f"no jars in {self._jars}: run `python -m slackwater.local.jars`")
        properties = spark.write_configuration(folder / "conf", endpoint=self._endpoint, jars=self._jars)
        conf = dict(submission.conf)
        for archive in submission.archives:
            (work / archive.folder).symlink_to(self._unpacked(archive))
        conf.pop("spark.archives", None)
        files = [self._fetched(uri, folder / "files") for uri in submission.python_files]
        conf.pop("spark.submit.pyFiles", None)
        command = [str(spark.spark_home() / "bin" / "spark-submit"), "--properties-file", str(properties)]
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        if files:
            command += ["--py-files", ",".join(str(path) for path in files)]
        if submission.main_class:
            command += ["--class", submission.main_class]
        command += ["--name", submission.name or folder.name]
        return [*command, str(self._fetched(submission.entry_point, folder / "files")), *submission.arguments]

    def _fetched(self, uri: str, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / uri.rsplit("/", 1)[-1]
        path.write_bytes(self._objects.get(uri).body)
        return path

    def _unpacked(self, archive: Archive) -> Path:
        """Return the folder that holds an archive's content; each content is unpacked once."""
        found = self._objects.get(archive.uri)
        target = self._folder / "archives" / hashlib.sha256(found.body).hexdigest()[:32]
        with self._unpacking:
            if not target.exists():
                partial = target.with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
                packed = partial.with_suffix(".packed")
                packed.write_bytes(found.body)
                _unpack(packed, partial, archive.uri)
                packed.unlink()
                partial.rename(target)
        return target

    def _submit(self, folder: Path, work: Path, command: list[str], submission: Submission, stop: Stop) -> Outcome:
        environment = spark.job_environment(
            folder, endpoint=self._endpoint, jars=self._jars, driver=submission.driver_environment
        )
        with _opened(folder) as (stdout, stderr):
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", guard.__file__, *command],
                cwd=work,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            code = _wait(process, stop)
        if stop.asked:
            return Outcome(code, "", stopped=True)
        return Outcome(code, "" if code == 0 else last_error(folder / "stdout", folder / "stderr"))

    def _keep_logs(self, folder: Path, log_prefix: str | None) -> None:
        if log_prefix is None:
            return
        for name in _LOGS:
            path = folder / name
            body = path.read_bytes() if path.exists() else b""
            # A log that cannot be kept does not fail a job, on EMR no more than here; it stays in the job's folder.
            with suppress(CloudError, InputError):
                self._objects.put(f"{log_prefix}/SPARK_DRIVER/{name}.gz", gzip.compress(body))


def _unpack(packed: Path, target: Path, uri: str) -> None:
    try:
        if zipfile.is_zipfile(packed):
            with zipfile.ZipFile(packed) as archive:
                archive.extractall(target)  # noqa: S202 - zipfile lets nothing leave the folder
        else:
            with tarfile.open(packed) as archive:
                archive.extractall(target, filter="tar")
    except (tarfile.TarError, zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{uri} cannot be unpacked: {error}") from error


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        yield stdout, stderr


def _wait(process: subprocess.Popen[bytes], stop: Stop) -> int:
    """Wait for the process, or for `stop`; whoever waits has its whole group gone at the end."""
    while process.poll() is None:
        if stop.asked and process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        time.sleep(0.05)
    if process.stdin is not None:
        process.stdin.close()
    return process.returncode
