"""Finds the Python that a job names among the interpreters of this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace

from slackwater.errors import CloudError
from slackwater.local.emr.submit import DRIVER_ENVIRONMENT, Submission
from slackwater.local.layout import PYTHON

# Those of emr-spark-8.1.0: the Release Guide names 3.11 and 3.13, the release notes of EMR Serverless 3.12.
IMAGE_PYTHONS = ("3.11", "3.12", "3.13")
_IMAGE_PROGRAM = re.compile(r"(?:/usr/bin/)?python(3\.\d+)")
_PROPERTIES = (
    f"{DRIVER_ENVIRONMENT}PYSPARK_PYTHON",
    f"{DRIVER_ENVIRONMENT}PYSPARK_DRIVER_PYTHON",
    "spark.executorEnv.PYSPARK_PYTHON",
    "spark.pyspark.python",
    "spark.pyspark.driver.python",
)
_START_SECONDS = 30


def use_local_pythons(submission: Submission) -> Submission:
    """Return the submission with this machine's interpreters in place of the image's.

    Raises `CloudError` when the image or this machine lacks one.
    """
    named = {key: local_python(submission.conf[key]) for key in _PROPERTIES if key in submission.conf}
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
