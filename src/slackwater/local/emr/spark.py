"""What the EMR image brings to a job: jars, file systems, endpoint, credentials, logging."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from slackwater.errors import CloudError
from slackwater.local import layout

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# Said at every start, about this machine and not about the job.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.metrics.name = org.apache.hadoop.metrics2
logger.metrics.level = error
# Warns of every Parquet file that its writer may not be told to flush.
logger.streams.name = org.apache.hadoop.fs.s3a.S3ABlockOutputStream
logger.streams.level = error
"""
_LOGGING_FILE = "log4j2.properties"


def spark_home() -> Path:
    """Return the folder of PyPI's Spark. Raises `CloudError` when it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CloudError("pyspark is not installed: install the extra `local`")
    return Path(spec.origin).parent


def write_configuration(folder: Path, *, endpoint: str, jars: Path) -> Path:
    """Write the properties and the logging that every job run starts from; return the properties' file."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{key} {value}\n" for key, value in _defaults(endpoint, jars).items())
    properties = folder / "spark-defaults.conf"
    properties.write_text(lines, encoding="utf-8")
    (folder / _LOGGING_FILE).write_text(_LOGGING, encoding="utf-8")
    return properties


def class_archive(jars: Path) -> Path:
    """Return where the JVM's archive of Spark's loaded classes is kept: `slackwater.local.jars` makes it."""
    return jars / "classes.jsa"


def java_options(configuration: Path) -> str:
    """Return what every driver's JVM is started with.

    A job here lives for seconds, so the JVM does not compile its code as if it ran for hours, which halves the
    processor time of a small job; with the class archive it halves again.
    """
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={configuration / _LOGGING_FILE}"


def _defaults(endpoint: str, jars: Path) -> dict[str, str]:
    class_path = ":".join(str(path) for path in sorted(jars.glob("*.jar")))
    return {
        "spark.master": "local[2]",
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        "spark.driver.memory": "1g",
        "spark.driver.host": layout.HOST,
        "spark.driver.bindAddress": layout.HOST,
        "spark.ui.enabled": "false",
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": layout.REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
        ),
    }


def job_environment(folder: Path, *, endpoint: str, jars: Path, driver: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a job's driver: what the image sets, then what the job sets.

    Nothing else of this process's environment reaches the job, so that a job which leans on it fails here already.
    """
    archive = class_archive(jars)
    archived = f" -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off" if archive.exists() else ""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "TZ") if name in os.environ}
    return {
        **kept,
        **layout.environment(endpoint),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "SPARK_HOME": str(spark_home()),
        # An empty folder, the same for every job: it stands on the class path, which the class archive is bound to.
        "SPARK_CONF_DIR": str(jars / "conf"),
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_SUBMIT_OPTS": java_options(folder / "conf") + archived,
        "SPARK_LOCAL_DIRS": str(folder / "tmp"),
        "SPARK_LOCAL_IP": layout.HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **driver,
    }
