"""Makes what the EMR image has and PyPI's Spark has not: `python -m slackwater.local.jars [ROOT]`.

That is the jars for S3 and Iceberg, and an archive of the classes that a job loads, which halves the time it takes to
start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from slackwater.errors import CloudError, SlackwaterError
from slackwater.local import cloud
from slackwater.local.emr import spark
from slackwater.local.emr.objects import Objects
from slackwater.local.emr.runner import SparkRunner, Stop
from slackwater.local.emr.submit import DRIVER_ENVIRONMENT, Submission
from slackwater.local.layout import Layout

_ICEBERG = "1.10.1"
_SDK = "2.33.0"
"""The AWS SDK that iceberg-aws-bundle holds; S3A runs on the same one."""
ARTEFACTS = (
    "org.apache.hadoop:hadoop-aws:3.4.1",
    f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{_ICEBERG}",
    f"org.apache.iceberg:iceberg-aws-bundle:{_ICEBERG}",
    f"software.amazon.awssdk:s3-transfer-manager:{_SDK}",
)
_IN_THE_BUNDLE = (
    "annotations",
    "arns",
    "auth",
    "aws-core",
    "bundle",
    "http-auth-aws",
    "http-client-spi",
    "json-utils",
    "metrics-spi",
    "protocol-core",
    "regions",
    "s3",
    "sdk-core",
    "utils",
)
"""Modules of the SDK that the artefacts above ask for, and that iceberg-aws-bundle holds already."""
_COMPLETE = "complete"
_TRAINING_JOB = Path(__file__).parent / "emr" / "training_job.py"


def fetch(folder: Path) -> list[Path]:
    """Return the jars in `folder`, fetched with Spark's own resolver if they are not there. Raises `CloudError`."""
    marker, wanted = folder / _COMPLETE, "\n".join(ARTEFACTS)
    if not marker.exists() or marker.read_text(encoding="utf-8") != wanted:
        with tempfile.TemporaryDirectory() as scratch:
            found = _resolve(Path(scratch))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for jar in found:
                shutil.move(jar, folder / jar.name)
        marker.write_text(wanted, encoding="utf-8")
    (folder / "conf").mkdir(exist_ok=True)
    return sorted(folder.glob("*.jar"))


def _resolve(scratch: Path) -> list[Path]:
    nothing = scratch / "nothing.py"
    nothing.write_text("", encoding="utf-8")
    home = spark.spark_home()
    command = [str(home / "bin" / "spark-submit"), "--conf", f"spark.jars.ivy={scratch / 'ivy'}"]
    command += ["--packages", ",".join(ARTEFACTS)]
    command += ["--exclude-packages", ",".join(f"software.amazon.awssdk:{name}" for name in _IN_THE_BUNDLE)]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(  # noqa: S603
        [*command, str(nothing)], env=environment, capture_output=True, text=True, check=False
    )
    jars = sorted((scratch / "ivy" / "jars").glob("*.jar"))
    if done.returncode or not jars:
        raise CloudError(f"Spark's jars could not be fetched:\n{done.stderr[-2000:]}")
    return jars


def archive_classes(folder: Path) -> Path:
    """Return the archive of the classes that a job loads, made by running one if it is not there.

    The job runs on a local cloud of its own, which leaves nothing. Raises `CloudError` when it fails.
    """
    archive = spark.class_archive(folder)
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory() as scratch:
        training = cloud.up(Path(scratch))
        try:
            _train(training.endpoint, folder, Path(scratch), archive)
        finally:
            cloud.down(Path(scratch))
    return archive


def _train(endpoint: str, folder: Path, scratch: Path, archive: Path) -> None:
    objects = Objects(endpoint)
    objects.make_bucket("training")
    objects.put("s3://training/job.py", _TRAINING_JOB.read_bytes())
    partial = scratch / archive.name
    options = f"{spark.java_options(scratch / 'jobs' / 'training' / 'conf')} -XX:ArchiveClassesAtExit={partial}"
    submission = Submission("s3://training/job.py", [])
    submission.conf = {f"{DRIVER_ENVIRONMENT}SPARK_SUBMIT_OPTS": f"{options} -Xlog:cds=off -Xlog:cds+dynamic=off"}
    runner = SparkRunner(endpoint=endpoint, jars=folder, folder=scratch / "jobs")
    outcome = runner.run("training", submission, log_prefix=None, stop=Stop())
    if outcome.exit_code or not partial.exists():
        raise CloudError(f"the classes that a job loads could not be archived: {outcome.error}")
    shutil.move(partial, archive)


def main() -> int:
    """Make them for the project in the folder that is named, or in this one."""
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
