"""What EMR's image gives a job: jars, file systems, endpoint, credentials, logging; and the start of its driver."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from slackwater.errors import CloudError
from slackwater.local import layout
from slackwater.local.emr import guard
from slackwater.local.fork_server import ForkedProcess, ForkServers, Process, Program
from slackwater.local.unpacked import Unpacked

TRAINING_JOB = Path(__file__).with_name("training_job.py")
_JOB_PROGRAM = Path(__file__).with_name("job_program.py")

# The last three loggers get the level `error`: their warnings are about this machine or about every Parquet file, not
# about the job.
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.metrics.name = org.apache.hadoop.metrics2
logger.metrics.level = error
logger.streams.name = org.apache.hadoop.fs.s3a.S3ABlockOutputStream
logger.streams.level = error
"""
_LOGGING_FILE = "log4j2.properties"
# Most jobs live for seconds: the quick compiler and the serial collector halve their processor time. A job with much
# input takes a third of it with both compilers.
_QUICK_COMPILER, _COLLECTOR = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
# Prevents collections while the JVM of a driver loads its classes.
_MEMORY_OPTIONS = "-Xmn256m -XX:MetaspaceSize=200m"
# PySpark imports it when it makes the first data frame of rows or of an Arrow table: 0.3 s of processor time.
_IMPORTED_LATER = ("pandas",)
# They differ between jobs, and no module reads them while it is imported.
_VARIABLES_OF_ONE_JOB = ("HOME", "LOCAL_DIRS", "PYTHONPATH", "SPARK_LOCAL_DIRS", "SPARK_SUBMIT_OPTS", "TMPDIR")


def spark_home() -> Path:
    """Return the folder of PyPI's Spark. Raises `CloudError` when it is not installed."""
    return _package_folder("pyspark")


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise CloudError(f"{name} is not installed: install Slackwater with the extra `local`")
    return Path(spec.origin).resolve().parent


def make_home(jars: Path) -> None:
    """Make the Spark home of jobs below `jars`, unless it is complete: links to the files of PyPI's Spark.

    There `pyspark.zip`, from which jobs import PySpark, is a folder: Python keeps the bytecode of modules in a folder,
    and compiles those of a zip file in every job.
    """
    home, installed = job_home(jars), spark_home()
    if (home / "jars").resolve() == installed / "jars" and class_archive(jars).exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    library = home / "python" / "lib"
    for archive in (installed / "python" / "lib").glob("*.zip"):
        package = archive.name.partition("-")[0].removesuffix(".zip")
        (library / archive.name).mkdir(parents=True)
        (library / archive.name / package).symlink_to(_package_folder(package))
    for name in ("bin", "jars"):
        (home / name).symlink_to(installed / name)


def job_home(jars: Path) -> Path:
    """Return the Spark home of jobs."""
    return jars / "spark"


class Image(NamedTuple):
    """What every job gets."""

    endpoint: str
    """The local cloud's."""
    jars: Path
    """The absolute path of the folder with the jars and the Spark home."""
    archives: Unpacked
    """The archives of jobs."""


def default_properties(image: Image) -> dict[str, str]:
    """Return the Spark properties that every job has."""
    class_path = ":".join(str(path) for path in sorted(image.jars.glob("*.jar")))
    return {
        # Two threads, so that a job has more than one task at a time, as on AWS.
        "spark.master": "local[2]",
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        "spark.driver.memory": "1g",
        "spark.driver.host": layout.HOST,
        "spark.driver.bindAddress": layout.HOST,
        "spark.ui.enabled": "false",
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.s3a.endpoint": image.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": layout.REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
    }


def class_archive(jars: Path) -> Path:
    """Return the path of the JVM's archive of loaded classes, which `slackwater.local.jars` makes."""
    # It is bound to the paths of the jars in the Spark home.
    return job_home(jars) / "classes.jsa"


def java_options(configuration: Path, *, is_large: bool = False) -> str:
    """Return the options of a driver's JVM. The folder `configuration`, which has its logging, is in its own folder."""
    compiler = [] if is_large else [_QUICK_COMPILER]
    temporary = f"-Djava.io.tmpdir={configuration.with_name('tmp')}"
    logging = f"-Dlog4j2.configurationFile={configuration / _LOGGING_FILE}"
    return " ".join([*compiler, _COLLECTOR, _MEMORY_OPTIONS, temporary, logging])


def write_credentials(folder: Path, aws: Mapping[str, str]) -> None:
    """Write the credentials of a job's role to the file in its home folder from which every AWS SDK reads them."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    lines = [f"{name.lower()} = {aws[name]}\n" for name in names if name in aws]
    file = credentials_file(folder)
    file.parent.mkdir(exist_ok=True)
    file.touch(mode=0o600)
    file.write_text("".join(["[default]\n", *lines]), encoding="utf-8")


def credentials_file(folder: Path) -> Path:
    """Return the path of a job's credentials; `folder` is its home folder."""
    return folder / ".aws" / "credentials"


def remove_private_files(folder: Path) -> None:
    """Remove the credentials, the temporary files and the working directory of a job or a driver from its folder."""
    for name in (".aws", "tmp", "work"):
        shutil.rmtree(folder / name, ignore_errors=True)


def jvm_mark(folder: Path) -> Path:
    """Return the file that exists while the program of a job, whose home folder is `folder`, needs its driver's JVM."""
    return folder / "uses-jvm"


def start_driver(
    folder: Path,
    arguments: Sequence[str],
    *,
    image: Image,
    environment: Mapping[str, str],
    is_large: bool = False,
) -> subprocess.Popen[bytes]:
    """Start `spark-submit` with these arguments in `folder`, with the variables of a job in `environment`.

    With `is_large`, its JVM is one for a job with much input. It runs until it ends or its standard input is closed,
    also because this process ends. Its output is in the files `stdout` and `stderr` of the folder.
    """
    for name in ("work", "tmp", "conf"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "conf" / _LOGGING_FILE).write_text(_LOGGING, encoding="utf-8")
    properties = folder / "conf" / "spark-defaults.conf"
    lines = [f"{key} {value}\n" for key, value in default_properties(image).items()]
    properties.write_text("".join(lines), encoding="utf-8")
    command = [str(job_home(image.jars) / "bin" / "spark-submit"), "--properties-file", str(properties), *arguments]
    variables = {**_environment(folder, image, is_large=is_large), **environment}
    with (folder / "stdout").open("ab") as stdout, (folder / "stderr").open("ab") as stderr:
        return _start(command, folder / "work", variables, stdout, stderr)


def start_program(
    folder: Path,
    command: Sequence[str],
    *,
    connection: Path,
    work: Path,
    image: Image,
    conf: Mapping[str, str],
    environment: Mapping[str, str],
    forks: ForkServers | None = None,
) -> Process:
    """Start the Python program of a job, whose folder is `folder`, for the driver that writes the file `connection`.

    `work` is the working directory, `conf` has the job's Spark properties. It ends as that of `start_driver`, and its
    output and errors are in the file `stdout` of the folder, as with `spark-submit`. With `forks`, it is forked if it
    imports from archives.
    """
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    properties = folder / "conf.json"
    sparks = [str(path) for path in (job_home(image.jars) / "python" / "lib").glob("*.zip")]
    paths = [*sparks, *filter(None, [environment.get("PYTHONPATH")])]
    variables = {
        **_environment(folder, image),
        **environment,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "YES",
    }
    # The workers of executors inherit the variables of the JVM, whose folders are not those of the job.
    workers = {f"spark.executorEnv.{name}": variables[name] for name in ("HOME", "TMPDIR")}
    defaults = {**default_properties(image), **workers}
    properties.write_text(json.dumps({**defaults, **conf}), encoding="utf-8")
    arguments = [str(connection), str(properties), *command]
    with (folder / "stdout").open("ab") as stdout:
        program = Program(
            *(_JOB_PROGRAM, arguments, variables, work),
            imports=[_JOB_PROGRAM, Path(command[0])],
            folder=Path(command[0]).parent,
            modules=_IMPORTED_LATER,
        )
        forked = forks and _fork(program, sparks, archives=image.archives.folder, forks=forks, output=stdout)
        return forked or _start([sys.executable, str(_JOB_PROGRAM), *arguments], work, variables, stdout, stdout)


def _fork(
    program: Program, sparks: Sequence[str], *, archives: Path, forks: ForkServers, output: IO[bytes]
) -> ForkedProcess | None:
    """Fork a job's program whose path has unpacked archives only; return None for all others.

    The modules of Spark and of an unpacked archive never change. Those of other folders on a job's path may, and those
    of this machine's Python, which a job without an archive imports.
    """
    added = [entry for entry in program.environment["PYTHONPATH"].split(os.pathsep) if entry not in sparks]
    libraries = [(program.cwd / entry).resolve() for entry in added]
    if not libraries or not all(library.is_relative_to(archives.resolve()) for library in libraries):
        return None
    variables = {name: value for name, value in program.environment.items() if name not in _VARIABLES_OF_ONE_JOB}
    # botocore derives file names from the home folder when it is imported. No such file exists, also in a job's.
    variables["HOME"] = "/nonexistent"
    return forks.start(program, libraries=[*sparks, *map(str, libraries)], variables=variables, output=output)


def _start(
    command: Sequence[str], work: Path, variables: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", guard.__file__, *command],
        cwd=work,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def _environment(folder: Path, image: Image, *, is_large: bool = False) -> dict[str, str]:
    """Return the image's environment variables.

    A job gets no other variable of this process, so that a job that needs one fails here as it would on AWS. AWS does
    not document that the image sets a region.
    """
    archive = class_archive(image.jars)
    # The class archive halves the time that a driver takes to start. The logging of `cds` is off, because a JVM that
    # cannot use the archive warns in every job's log, and only starts more slowly.
    class_sharing = f" -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off" if archive.exists() else ""
    return {
        **{name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG", "TZ") if name in os.environ},
        "AWS_ENDPOINT_URL": image.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        # MiniStack computes CRC64 in pure Python, at 14 MB/s.
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "SPARK_HOME": str(job_home(image.jars)),
        # An empty folder, the same for every job: it is on the class path, and the class archive is bound to that.
        "SPARK_CONF_DIR": str(image.jars / "conf"),
        "SPARK_LAUNCHER_OPTS": f"{_QUICK_COMPILER} {_COLLECTOR}",
        "SPARK_SUBMIT_OPTS": java_options(folder / "conf", is_large=is_large) + class_sharing,
        "SPARK_LOCAL_DIRS": str(folder / "tmp"),
        "LOCAL_DIRS": str(folder / "tmp"),  # where S3A keeps what it uploads
        "SPARK_LOCAL_IP": layout.HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
