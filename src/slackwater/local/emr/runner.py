"""Runs one attempt of a job run: fetches its files from S3, runs its driver, stores the logs, finds the error."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, cast
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from slackwater.errors import AccessDenied, CloudError, InputError, ObjectMissing, SlackwaterError
from slackwater.local import layout
from slackwater.local.emr import spark
from slackwater.local.emr.drivers import Driver, Drivers, size_of
from slackwater.local.emr.submit import Submission, use_local_pythons
from slackwater.storage import split_uri

# What Spark unpacks; it decides by the name and only copies other files.
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".jar")
_REQUEST_SECONDS = 60
_FORBIDDEN, _NOT_FOUND = 403, 404
# The end of a log that is searched for errors.
_TAIL_BYTES = 64 * 1024
_TRACEBACK = "Traceback (most recent call last):"
# Lines that log4j and the JVM write: `26/11/21 03:05:59 WARN ...`, `WARNING: ...`.
_LOGGED = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ |WARNING: ")
# `ErrorType: message` of Python or Java, with its package and with the JVM's prefixes.
_ERROR_LINE = re.compile(r"(Exception in thread \S+ |Caused by: )?([a-z_]\w*\.)*[A-Z]\w*[a-z]\w*: .+")

# After these errors, the next job may find classes that cannot be loaded.
_BROKEN_JVM = re.compile(r"(OutOfMemory|NoClassDefFound|ExceptionInInitializer)Error")


class AttemptResult(NamedTuple):
    """How an attempt ended."""

    exit_code: int
    """0 for success; -1 when the driver was never started."""
    error: str
    """The driver's last error, or why it could not be started; empty for success."""
    stopped: bool = False
    """Whether the attempt was stopped."""


class SparkRunner:
    """Runs attempts as processes of this machine."""

    def __init__(
        self,
        *,
        image: spark.Image,
        folder: Path,
        credentials: Callable[[str], Mapping[str, str]],
        drivers: Drivers | None = None,
    ) -> None:
        """`credentials` returns the environment variables with the credentials of a job run, by its id.

        An attempt runs in one of the `drivers`, if its job can, else in a `spark-submit` of its own.
        """
        self._image, self._folder, self._credentials, self._drivers = image, folder, credentials, drivers
        self._unpacking = threading.Lock()

    def run(
        self, job_run: str, submission: Submission, *, log_prefix: str | None, stop: threading.Event
    ) -> AttemptResult:
        """Run one attempt until it ends or `stop` is set; copy its logs to S3 below the URI `log_prefix`, if given.

        Afterwards no credentials, temporary files or working directory of it are left, also after an error.
        """
        try:
            aws = {**layout.environment(self._image.endpoint), **self._credentials(job_run)}
        except AccessDenied as error:
            return AttemptResult(-1, str(error))
        folder = self._folder / job_run
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier attempt
        folder.mkdir(parents=True)
        try:
            result = self._run(job_run, folder, submission, aws, stop)
            for name in ("stdout", "stderr") if log_prefix else ():
                log = (folder / name).read_bytes() if (folder / name).exists() else b""
                # On EMR too, a job does not fail because its logs cannot be stored; they stay in the job's folder.
                with suppress(AccessDenied, CloudError, InputError):
                    request_object(aws, "PUT", f"{log_prefix}/SPARK_DRIVER/{name}.gz", gzip.compress(log))
        finally:
            spark.remove_private_files(folder)
        return result

    def _run(
        self, job_run: str, folder: Path, submission: Submission, aws: Mapping[str, str], stop: threading.Event
    ) -> AttemptResult:
        """Run one attempt until it ends or `stop` is set, in a driver if its job can."""
        driver, result = None, AttemptResult(-1, "")
        try:
            submission = use_local_pythons(submission)
            driver = self._drivers.take(job_run, submission) if self._drivers else None
            work = driver.work if driver else folder / "work"
            command = self._prepare(folder, work, submission, aws)
            if stop.is_set():
                result = AttemptResult(-1, "", stopped=True)
            else:
                spark.write_credentials(folder, aws)
                result = self._submit(folder, command, submission, driver, stop)
        except SlackwaterError as error:
            (folder / "stderr").write_text(f"{error}\n", encoding="utf-8")
            result = AttemptResult(-1, str(error))
        except BaseException:
            if driver:
                driver.close()
            raise
        if driver:
            self._end(job_run, driver, folder, result)
        return result

    def _end(self, job_run: str, driver: Driver, folder: Path, result: AttemptResult) -> None:
        """Keep the driver's log of a job, and the driver if its JVM has nothing left to do."""
        if result.exit_code >= 0:
            (folder / "stderr").unlink(missing_ok=True)
            shutil.copyfile(driver.log, folder / "stderr")
        # `result.error` is not enough: a job may report only the cause of such an error.
        broken = any(_BROKEN_JVM.search(_end_of(log)) for log in (folder / "stdout", driver.log))
        if driver.alive and not broken and not spark.jvm_mark(folder).exists() and self._drivers:
            self._drivers.give_back(job_run, driver)
        else:
            driver.close()

    def _prepare(self, folder: Path, work: Path, submission: Submission, aws: Mapping[str, str]) -> list[str]:
        """Fetch the files of the submission; the archives are unpacked into the working directory `work`.

        Return the path of the program on this machine, and its arguments.
        """
        for needed in (folder / "files", work):
            needed.mkdir(exist_ok=True)
        if not any(self._image.jars.glob("*.jar")):
            raise CloudError(f"no jars in {self._image.jars}: run `python -m slackwater.local.jars`")
        # What emr-spark-8.0.0 fails with for the path of Iceberg in "Using Apache Iceberg with EMR Serverless".
        if jars := submission.image_jars:
            raise InputError(
                f"java.nio.file.NoSuchFileException: {jars[0]} (not in the image of the release, which has Iceberg on "
                "its class path: remove it from spark.jars)"
            )
        if not (home := spark.job_home(self._image.jars)).joinpath("bin", "spark-submit").exists():
            raise CloudError(f"no Spark in {home}: run `python -m slackwater.local.jars`")
        for name, uri in submission.archives.items():
            (work / name).symlink_to(self._unpack(uri, aws))
        return [str(_fetch(submission.entry_point, folder / "files", aws)), *submission.arguments]

    def _unpack(self, uri: str, aws: Mapping[str, str]) -> Path:
        """Return the folder with the content of an archive; the same content is unpacked once.

        Raises `InputError` for an archive that cannot be unpacked, or that Spark would only copy; `CloudError` for one
        without an ETag.
        """
        if not uri.endswith(_ARCHIVES):
            raise InputError(
                f"Cannot unpack {uri}: Spark unpacks files with names that end with {', '.join(_ARCHIVES)}"
            )
        # An archive has 75 MB. Its ETag is a digest of its content, so that most jobs need not fetch it.
        etag, _ = request_object(aws, "HEAD", uri)
        with self._unpacking:
            if found := self._image.archives.find(_archive_digest(uri, etag)):
                return found
            etag, content = request_object(aws, "GET", uri)  # the archive may have changed since
            try:
                return self._image.archives.add(_archive_digest(uri, etag), partial(_extract, content))
            except (tarfile.TarError, zipfile.BadZipFile, OSError) as error:
                raise InputError(f"{uri} cannot be unpacked: {error}") from error

    def _submit(
        self,
        folder: Path,
        command: list[str],
        submission: Submission,
        driver: Driver | None,
        stop: threading.Event,
    ) -> AttemptResult:
        """Run the program until it ends or `stop` is set, in the driver if there is one."""
        conf = {"spark.app.name": folder.name} | submission.conf
        conf.pop("spark.archives", None)
        if driver:
            process = driver.start(folder, command, conf=conf, environment=submission.driver_environment)
            os.link(driver.log, folder / "stderr")  # so that the job's log can be read while it runs
        else:
            arguments = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
            process = spark.start_driver(
                folder,
                [*arguments, *command],
                image=self._image,
                environment=submission.driver_environment,
                is_large=size_of(submission).executors_mb > 0,
            )
        # The open pipe is the sign for the guard that the job may run; it closes even if this process is killed.
        with cast("IO[bytes]", process.stdin):
            while process.poll() is None and not stop.wait(0.05):
                pass
        code = process.wait()  # its input is closed now, so the guard kills what still runs
        if stop.is_set():
            return AttemptResult(code, "", stopped=True)
        return AttemptResult(code, "" if code == 0 else last_error(folder / "stdout", folder / "stderr"))


def _archive_digest(uri: str, etag: str) -> str:
    if not etag:  # all such archives would have the same folder
        raise CloudError(f"S3 returned no ETag for {uri}: run the job again")
    return hashlib.sha256(etag.encode()).hexdigest()[:32]


def _extract(content: bytes, folder: Path) -> None:
    packed = io.BytesIO(content)
    if zipfile.is_zipfile(packed):
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(folder)  # noqa: S202 - zipfile writes nothing outside the folder
    else:
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            archive.extractall(folder, filter="tar")


def _fetch(uri: str, folder: Path, aws: Mapping[str, str]) -> Path:
    path = folder / uri.rsplit("/", 1)[-1]
    path.write_bytes(request_object(aws, "GET", uri)[1])
    return path


def last_error(stdout: Path, stderr: Path) -> str:
    """Return the error that ended a driver, from its logs.

    It is the first of these that exists:

    1. in standard output, the last line if it reads `ErrorType: message`
    2. there, the error of the last traceback
    3. there, the last line that reads `ErrorType: message`
    4. the same three in standard error
    5. the last line of standard output, or of standard error
    """
    # Standard output first: spark-submit sends a Python driver's standard error there.
    logs = [_tail(stdout), _tail(stderr)]
    for lines in logs:
        if lines and _ERROR_LINE.fullmatch(lines[-1]):
            return lines[-1]
        starts = [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]
        raised = [line for line in lines[starts[-1] + 1 :] if not line.startswith(" ")] if starts else []
        if raised:
            # The message of a JVM's error is in the next line, which begins with a colon.
            return " ".join([raised[0], *(line for line in raised[1:2] if line.startswith(":"))])
        if error := next((line for line in reversed(lines) if _ERROR_LINE.fullmatch(line)), None):
            return error
    return next((lines[-1] for lines in logs if lines), "the driver wrote no log")


def _tail(log: Path) -> list[str]:
    """Return the last lines of a log that neither log4j nor the JVM wrote."""
    lines = [line.rstrip() for line in _end_of(log).splitlines()]
    return [line for line in lines if line and not _LOGGED.match(line)]


def _end_of(log: Path) -> str:
    """Return the end of a log; empty if there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")


def request_object(aws: Mapping[str, str], method: str, uri: str, body: bytes | None = None) -> tuple[str, bytes]:
    """Send one request for the object `uri`. Return the ETag and the body of the response; each may be empty.

    `aws` holds the environment variables with endpoint, region and credentials. Raises `InputError` for a URI that is
    not of S3, `ObjectMissing` for a missing object or bucket, `AccessDenied` when a permission is missing, `CloudError`
    for any other failure.
    """
    bucket, key = split_uri(uri)
    unsigned = AWSRequest(method, f"{aws['AWS_ENDPOINT_URL']}/{bucket}/{quote(key)}", data=body)
    credentials = Credentials(aws["AWS_ACCESS_KEY_ID"], aws["AWS_SECRET_ACCESS_KEY"], aws.get("AWS_SESSION_TOKEN"))
    S3SigV4Auth(credentials, "s3", aws["AWS_REGION"]).add_auth(unsigned)  # adds headers
    headers = dict(unsigned.headers.items())
    request = urllib.request.Request(unsigned.url, data=body, headers=headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as response:  # noqa: S310
            return response.headers.get("ETag", ""), response.read()
    except urllib.error.HTTPError as error:
        if error.code == _NOT_FOUND:
            raise ObjectMissing(f"{uri} does not exist") from error
        if error.code == _FORBIDDEN:
            raise AccessDenied(f"the job's role lacks the permission for {method} {uri}") from error
        raise CloudError(f"{method} {uri}: HTTP {error.code}") from error
    except OSError as error:
        raise CloudError(f"{method} {uri}: {error}") from error
