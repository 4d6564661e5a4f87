"""Runs a job's Python program in a driver that already runs: `job_program.py CONNECTION CONF PROGRAM [ARGUMENT ...]`.

`CONNECTION` is the file into which Spark's JVM writes the port and the secret of its Py4J gateway when it is ready.
`CONF` is a JSON file with the job's Spark properties. The JVM may have run other jobs: it gets the properties and the
credentials of this one, and after the job none of them stays. The file `uses-jvm` is beside `CONF` while the program
waits for the JVM or uses it: it stays when the JVM does not start, and when the program is killed, because the JVM may
still run tasks.

It imports only PySpark: a job brings its own versions of all other packages.
"""

from __future__ import annotations

import configparser
import json
import os
import runpy
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

_START_SECONDS = 60
# How long tasks may take to stop after a job has failed.
_STOP_SECONDS = 3
# Where the AWS SDK for Java looks first. It reads a property again for each request.
_CREDENTIALS = {
    "aws_access_key_id": "aws.accessKeyId",
    "aws_secret_access_key": "aws.secretAccessKey",
    "aws_session_token": "aws.sessionToken",
}


def wait_for_connection(file: Path) -> tuple[int, str]:
    """Return port and secret of the gateway. Raises `RuntimeError` if the JVM does not start within a minute."""
    deadline = time.monotonic() + _START_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"Spark's JVM has not started within {_START_SECONDS} s: see stderr")
        time.sleep(0.02)
    # What `pyspark.java_gateway.launch_gateway` reads: a port, the length of the secret, the secret.
    content = file.read_bytes()
    port, length = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + length].decode()


def read_credentials() -> dict[str, str]:
    """Return the job's credentials as system properties of the JVM; without credentials an empty dictionary."""
    file = configparser.ConfigParser(interpolation=None)
    file.read(Path.home() / ".aws" / "credentials", encoding="utf-8")
    return {_CREDENTIALS[name]: value for name, value in file["default"].items()} if "default" in file else {}


def prepare(jvm: Any, conf: dict[str, str]) -> None:
    """Give the JVM the properties and the credentials of a job, in place of those with which it was started."""
    forget(jvm)
    for name, value in {**conf, **read_credentials()}.items():
        jvm.java.lang.System.setProperty(name, value)


def forget(jvm: Any) -> None:
    """Remove properties and credentials from the JVM, also those of cached file systems."""
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()
    for name in list(jvm.java.lang.System.getProperties().stringPropertyNames()):
        if name.startswith(("spark.", "aws.")):
            jvm.java.lang.System.clearProperty(name)


def becomes_idle(jvm: Any) -> bool:
    """Stop the session that a program has left. Return whether no task runs any more."""
    context = getattr(getattr(jvm.org.apache.spark, "SparkContext$"), "MODULE$").getActive()
    if context.isDefined():
        context.get().stop()
    deadline = time.monotonic() + _STOP_SECONDS
    # A task that is stopped goes on until it notices.
    while "Executor task launch worker" in jvm.java.lang.Thread.getAllStackTraces().keySet().toString():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def main() -> None:
    """Connect to the JVM, prepare it, and run the program as `spark-submit` does."""
    connection, conf, program, *arguments = sys.argv[1:]
    mark = Path(conf).with_name("uses-jvm")
    mark.touch()
    port, secret = wait_for_connection(Path(connection))
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    SparkContext._ensure_initialized()
    prepare(SparkContext._jvm, json.loads(Path(conf).read_text(encoding="utf-8")))
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        with suppress(Py4JError):  # the JVM has ended
            if becomes_idle(SparkContext._jvm):
                forget(SparkContext._jvm)
                mark.unlink()


if __name__ == "__main__":
    main()
