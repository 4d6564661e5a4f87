"""Reads what a job run submits to Spark, from its driver, `sparkSubmitParameters` and configuration overrides."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from slackwater.errors import CloudError
from slackwater.local.layout import PYTHON
from slackwater.local.service_model import EmrValidationError

DRIVER_ENVIRONMENT = "spark.emr-serverless.driverEnv."
# Properties that the service sets itself; it refuses jobs that set them.
_SERVICE_PROPERTIES = ("spark.master", "spark.submit.deployMode")
# Those of emr-spark-8.1.0: the Release Guide names 3.11 and 3.13, the release notes of EMR Serverless 3.12.
IMAGE_PYTHONS = ("3.11", "3.12", "3.13")
_IMAGE_PROGRAM = re.compile(r"(?:/usr/bin/)?python(3\.\d+)")
_PYTHON_PROPERTIES = (
    f"{DRIVER_ENVIRONMENT}PYSPARK_PYTHON",
    f"{DRIVER_ENVIRONMENT}PYSPARK_DRIVER_PYTHON",
    "spark.executorEnv.PYSPARK_PYTHON",
    "spark.pyspark.python",
    "spark.pyspark.driver.python",
)
_START_SECONDS = 30


@dataclass
class Submission:
    """One spark-submit; its files are still URIs."""

    entry_point: str
    arguments: list[str]
    conf: dict[str, str] = field(default_factory=dict)

    @property
    def driver_environment(self) -> dict[str, str]:
        """The environment variables that the job sets for its driver."""
        return {
            key.removeprefix(DRIVER_ENVIRONMENT): value
            for key, value in self.conf.items()
            if key.startswith(DRIVER_ENVIRONMENT)
        }

    @property
    def archives(self) -> dict[str, str]:
        """The URIs of `spark.archives` by the folder of the driver's working directory into which each is unpacked.

        The folder is the fragment of the URI, or the name of the archive.
        """
        parts = [item.partition("#") for item in _split(self.conf.get("spark.archives", ""))]
        return {folder or uri.rsplit("/", 1)[-1]: uri for uri, _, folder in parts}

    @property
    def image_jars(self) -> list[str]:
        """The jars of `spark.jars` that are paths in the image of the release."""
        jars = (urlsplit(jar) for jar in _split(self.conf.get("spark.jars", "")))
        return [jar.path for jar in jars if jar.scheme in ("", "file", "local")]


def read_submission(request: Mapping[str, Any], defaults: list[dict[str, Any]]) -> Submission:
    """Return what a StartJobRun request submits; `defaults` is the application's `runtimeConfiguration`.

    Parameters win over overrides, and overrides over defaults, as since emr-spark-8.1.0: in emr-spark-8.0.0, a job's
    configuration replaces all of the application's (release notes of EMR Serverless, "Merged Spark configuration").
    Raises `EmrValidationError` for options that cannot be read or that the service does not let a job set.
    """
    driver = request.get("jobDriver", {}).get("sparkSubmit")
    if driver is None:
        raise EmrValidationError("jobDriver.sparkSubmit is required: this application runs Spark jobs")
    submission = Submission(driver["entryPoint"], list(driver.get("entryPointArguments", [])))
    overrides = request.get("configurationOverrides", {}).get("applicationConfiguration", [])
    for configuration in [*defaults, *overrides]:
        if configuration["classification"] == "spark-defaults":
            submission.conf.update(configuration.get("properties", {}))
    try:
        words = iter(shlex.split(driver.get("sparkSubmitParameters", "")))
    except ValueError as error:
        raise EmrValidationError(f"sparkSubmitParameters cannot be read: {error}") from error
    for word in words:
        if word != "--conf":
            raise EmrValidationError(f"sparkSubmitParameters: {word!r}: the local cloud knows --conf KEY=VALUE only")
        key, equals, value = (setting := next(words, "")).partition("=")
        if not equals:
            raise EmrValidationError(f"sparkSubmitParameters: --conf {setting!r} is not key=value")
        submission.conf[key.strip()] = value
    for key in _SERVICE_PROPERTIES:
        if key in submission.conf:
            raise EmrValidationError(f"Option '{key}' is not supported")
    return submission


def _split(items: str) -> list[str]:
    return [item.strip() for item in items.split(",") if item.strip()]


def use_local_pythons(submission: Submission) -> Submission:
    """Return the submission with this machine's interpreters in place of the image's.

    Raises `CloudError` when the image or this machine lacks one.
    """
    named = {key: local_python(submission.conf[key]) for key in _PYTHON_PROPERTIES if key in submission.conf}
    return replace(submission, conf=submission.conf | named)


def local_python(program: str) -> str:
    """Return this machine's interpreter for the image's `program`, such as `python3.11` or `/usr/bin/python3.11`.

    A program that is not part of the image, such as `./environment/bin/python`, stays as it is. Raises `CloudError`
    when the image or this machine lacks the program.
    """
    match = _IMAGE_PROGRAM.fullmatch(program)
    if match is None:
        return program
    version = match[1]
    if version not in IMAGE_PYTHONS:
        raise CloudError(
            f'Cannot run program "{program}": No such file or directory (EMR has Python {", ".join(IMAGE_PYTHONS)})'
        )
    if version == PYTHON:
        return sys.executable
    path = shutil.which(f"python{version}")
    if path is None or _version(path) != version:
        raise CloudError(
            f'Cannot run program "{program}": EMR has Python {version}, but this machine does not. Install it, or '
            f"deploy with `slackwater deploy`, which sets spark_python={PYTHON} for this local cloud"
        )
    return path


def _version(path: str) -> str:
    """Return an interpreter's version, `3.13`; empty if it does not start, as pyenv's shims of other versions do."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(  # noqa: S603
            [path, "-I", "-c", program], check=False, capture_output=True, text=True, timeout=_START_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
