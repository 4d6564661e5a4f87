"""Makes the parts of EMR's image that PyPI's Spark lacks: `python -m slackwater.local.jars [ROOT]`.

They are the jars for S3 and Iceberg, and an archive of the classes that a job loads, which halves a job's start time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from slackwater.errors import CloudError, SlackwaterError
from slackwater.local import cloud
from slackwater.local.emr import spark
from slackwater.local.emr.runner import SparkRunner, request_object
from slackwater.local.emr.submit import DRIVER_ENVIRONMENT, Submission
from slackwater.local.layout import Layout

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
# Modules of the SDK that the artefacts depend on. They are excluded, because iceberg-aws-bundle contains them.
_IN_THE_BUNDLE = (
    *("annotations", "arns", "auth", "aws-core", "bundle", "http-auth-aws", "http-client-spi", "json-utils"),
    *("metrics-spi", "protocol-core", "regions", "s3", "sdk-core", "utils"),
)


def fetch(folder: Path) -> list[Path]:
    """Return the jars in `folder`, after fetching them with Spark's own resolver if needed. Raises `CloudError`."""
    # The archive of classes, which is in the same folder, fits one version of Spark only.
    marker, content = folder / "complete", "\n".join([*ARTEFACTS, f"pyspark {version('pyspark')}"])
    if not marker.exists() or marker.read_text(encoding="utf-8") != content:
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
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for jar in resolved:
                shutil.move(jar, folder / jar.name)
        # Written last: without it, the next call fetches everything again.
        marker.write_text(content, encoding="utf-8")
    (folder / "conf").mkdir(exist_ok=True)
    spark.make_home(folder)
    return sorted(folder.glob("*.jar"))


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
            submission = Submission("s3://training/job.py", [], {f"{DRIVER_ENVIRONMENT}SPARK_SUBMIT_OPTS": options})
            runner = SparkRunner(
                endpoint=training.endpoint, jars=folder, folder=scratch / "jobs", credentials=lambda _: aws
            )
            result = runner.run("training", submission, log_prefix=None, stop=threading.Event())
            if result.exit_code or not partial.exists():
                raise CloudError(f"the archive of classes could not be made: {result.error}")
            shutil.move(partial, archive)
        finally:
            cloud.down(scratch)
    return archive


def main() -> int:
    """Make jars and class archive for the project in the folder of the first argument, or in this folder."""
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
