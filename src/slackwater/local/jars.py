"""Makes the parts of EMR's image that PyPI's Spark lacks: `python -m slackwater.local.jars [ROOT]`.

They are the jars for S3 and Iceberg, and an archive of the classes that a job loads, which halves a job's start time
and takes about a minute to make. `slackwater local up` only fetches the jars.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from slackwater.errors import CloudError, InputError, SlackwaterError
from slackwater.local import cloud, layout
from slackwater.local.emr import spark
from slackwater.local.emr.runner import SparkRunner, request_object
from slackwater.local.emr.submit import DRIVER_ENVIRONMENT, Submission
from slackwater.local.layout import Layout
from slackwater.local.unpacked import Unpacked
from slackwater.project.installation import cache_folder, deployed_files, locked

ARTEFACTS = (
    "org.apache.hadoop:hadoop-aws:3.4.2",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
    # S3A needs a transfer manager of the same version as the SDK in iceberg-aws-bundle.
    "software.amazon.awssdk:s3-transfer-manager:2.44.4",
)
# The artefacts and what they depend on, with SHA-256.
_JARS = {
    "org.apache.hadoop_hadoop-aws-3.4.2.jar": "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
    "org.apache.iceberg_iceberg-aws-bundle-1.11.0.jar": (
        "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f"
    ),
    "org.apache.iceberg_iceberg-spark-runtime-4.1_2.13-1.11.0.jar": (
        "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242"
    ),
    "org.wildfly.openssl_wildfly-openssl-2.1.4.Final.jar": (
        "95decbc5d088b40e85f58d7726b8c8f4e3be6312a0f2660c2d714a23cee80279"
    ),
    "software.amazon.awssdk_s3-transfer-manager-2.44.4.jar": (
        "dbcad736b19f6eb8471f9edf027d9fffe994228f25f415894efd01fd80cb6c02"
    ),
    "software.amazon.s3.analyticsaccelerator_analyticsaccelerator-s3-1.2.1.jar": (
        "11029552e37408e41e689b20150f4b372e0b4f232de321ccafd0fcf443cdfb5a"
    ),
}
_JAVA = 17
# Modules of the SDK that the artefacts depend on. They are excluded, because iceberg-aws-bundle contains them.
_IN_THE_BUNDLE = (
    *("annotations", "arns", "auth", "aws-core", "bundle", "http-auth-aws", "http-client-spi", "json-utils"),
    *("metrics-spi", "protocol-core", "regions", "s3", "sdk-core", "utils"),
)


def fetch(folder: Path) -> list[Path]:
    """Return the jars in `folder`. If needed, they are added from the cache, and fetched into it.

    Raises `InputError` if Java is missing, and `CloudError` if the jars cannot be fetched.
    """
    if not is_complete(folder):
        check_java()
        cache = cache_folder(deployed_files())
        downloads = cache / "downloads"
        with locked(cache):
            if not all((downloads / name).exists() for name in _JARS):
                _download(downloads)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in _JARS:
            try:
                (folder / name).hardlink_to(downloads / name)
            except OSError:  # the cache is in another file system
                shutil.copy2(downloads / name, folder / name)
        # Written last: without it, the next call starts again.
        _marker(folder).write_text(_versions(), encoding="utf-8")
    (folder / "conf").mkdir(exist_ok=True)
    spark.make_home(folder)
    return sorted(folder.glob("*.jar"))


def is_complete(folder: Path) -> bool:
    """Return whether a folder has the jars of these versions."""
    return _marker(folder).exists() and _marker(folder).read_text(encoding="utf-8") == _versions()


def _marker(folder: Path) -> Path:
    return folder / "complete"


def _versions() -> str:
    # The archive of classes, which is in the same folder, fits one version of Spark only.
    return "\n".join([*ARTEFACTS, f"pyspark {version('pyspark')}"])


def _download(folder: Path) -> None:
    """Fetch the jars into `folder` with Spark's own resolver."""
    with tempfile.TemporaryDirectory() as temporary:
        scratch, home = Path(temporary), spark.spark_home()
        # spark-submit resolves packages before it runs a program, so an empty one is enough.
        (scratch / "nothing.py").touch()
        command = [str(home / "bin" / "spark-submit"), "--conf", f"spark.jars.ivy={scratch / 'ivy'}"]
        command += ["--packages", ",".join(ARTEFACTS)]
        command += ["--exclude-packages", ",".join(f"software.amazon.awssdk:{name}" for name in _IN_THE_BUNDLE)]
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        process = subprocess.run(  # noqa: S603
            [*command, str(scratch / "nothing.py")], env=environment, capture_output=True, text=True, check=False
        )
        resolved = sorted((scratch / "ivy" / "jars").glob("*.jar"))
        if process.returncode or not resolved:
            raise CloudError(f"Spark's jars could not be fetched:\n{process.stderr[-2000:]}")
        check_jars(resolved)
        folder.mkdir(parents=True, exist_ok=True)
        for jar in resolved:
            # Renamed in its folder: an interrupted copy leaves no jar that looks complete.
            partial = Path(shutil.move(jar, folder / f"{jar.name}.partial"))
            partial.replace(folder / jar.name)


def check_java() -> None:
    """Raise `InputError` unless Spark finds Java 17 or newer: in JAVA_HOME if it is set, else on the PATH."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else Path("java")
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    except OSError:
        shown = ""
    found = re.search(r'version "(\d+)', shown)
    if found is None or int(found[1]) < _JAVA:
        problem = f"{java} is Java {found[1]}" if found else f"there is no {java}"
        raise InputError(f"Spark needs Java {_JAVA} or newer, and {problem}: put it on the PATH, or set JAVA_HOME")


def check_jars(jars: Iterable[Path]) -> None:
    """Raise `CloudError` unless these are exactly the jars that this module pins by SHA-256."""
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}
    if wrong := sorted(name for name, _ in found.items() ^ _JARS.items()):
        raise CloudError(
            f"not the expected jars: {', '.join(dict.fromkeys(wrong))}. If slackwater.local.jars names new versions, "
            "correct the SHA-256 there; otherwise do not use the repository that they come from"
        )


def archive_classes(folder: Path) -> Path:
    """Return the archive of the classes that a job loads. If it does not exist, a training job is run to make it.

    The job runs on a temporary local cloud. Raises `CloudError` when it fails.
    """
    archive = spark.class_archive(folder)
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        training = cloud.up(scratch)
        try:
            aws = training.environment()
            request_object(aws, "PUT", "s3://training/", b"")
            request_object(aws, "PUT", "s3://training/job.py", spark.TRAINING_JOB.read_bytes())
            partial = scratch / archive.name
            options = f"{spark.java_options(scratch / 'jobs' / 'training' / 'conf')} -XX:ArchiveClassesAtExit={partial}"
            options += " -Xlog:cds=off -Xlog:cds+dynamic=off"
            submission = Submission(
                "s3://training/job.py",
                [],
                {
                    f"{DRIVER_ENVIRONMENT}SPARK_SUBMIT_OPTS": options,
                    f"{DRIVER_ENVIRONMENT}AWS_REGION": layout.REGION,
                },
            )
            image = spark.Image(training.endpoint, folder.resolve(), Unpacked(scratch / "archives"))
            runner = SparkRunner(image=image, folder=scratch / "jobs", credentials=lambda _: aws)
            result = runner.run("training", submission, log_prefix=None, stop=threading.Event())
            if result.exit_code or not partial.exists():
                raise CloudError(f"the archive of classes could not be made: {result.error}")
            shutil.move(partial, archive)
        finally:
            cloud.down(scratch)
    return archive


def main() -> int:
    """Make jars and class archive for the root in the first argument (the folder of `.slackwater`), or this folder."""
    folder = Layout(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()).jars
    try:
        jars = fetch(folder)
        archive_classes(folder)
    except SlackwaterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(jars)} jars, {sum(jar.stat().st_size for jar in jars) / 1e6:.0f} MB, in {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
