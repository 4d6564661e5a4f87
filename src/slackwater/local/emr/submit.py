"""What a job run asks of spark-submit, read from `sparkSubmitParameters` and its overrides."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slackwater.local.emr.errors import Invalid

DRIVER_ENVIRONMENT = "spark.emr-serverless.driverEnv."
_PROPERTIES = {
    "--archives": "spark.archives",
    "--driver-cores": "spark.driver.cores",
    "--driver-memory": "spark.driver.memory",
    "--executor-cores": "spark.executor.cores",
    "--executor-memory": "spark.executor.memory",
    "--num-executors": "spark.executor.instances",
    "--py-files": "spark.submit.pyFiles",
    "--jars": "spark.jars",
    "--files": "spark.files",
    "--packages": "spark.jars.packages",
    "--repositories": "spark.jars.repositories",
    "--exclude-packages": "spark.jars.excludes",
}
"""Options that only set a property, with that property."""
_OWNED = ("spark.master", "spark.submit.deployMode")
"""Properties that are the service's, not the job's."""


class Archive(NamedTuple):
    """An archive that is unpacked in the driver's working directory."""

    uri: str
    folder: str


@dataclass
class Submission:
    """One spark-submit, before anything is fetched."""

    entry_point: str
    arguments: list[str]
    conf: dict[str, str] = field(default_factory=dict)
    main_class: str | None = None
    name: str | None = None

    @property
    def driver_environment(self) -> dict[str, str]:
        """The environment variables that the job sets for its driver."""
        return {
            key.removeprefix(DRIVER_ENVIRONMENT): value
            for key, value in self.conf.items()
            if key.startswith(DRIVER_ENVIRONMENT)
        }

    @property
    def archives(self) -> list[Archive]:
        """`spark.archives`, each with the folder that it becomes."""
        found = []
        for item in filter(None, self.conf.get("spark.archives", "").split(",")):
            uri, _, folder = item.strip().partition("#")
            found.append(Archive(uri, folder or uri.rsplit("/", 1)[-1]))
        return found

    @property
    def python_files(self) -> list[str]:
        """`--py-files`."""
        return [item.strip() for item in self.conf.get("spark.submit.pyFiles", "").split(",") if item.strip()]


def read_submission(request: Mapping[str, Any], defaults: list[dict[str, Any]]) -> Submission:
    """Return what a StartJobRun request submits; `defaults` is the application's `runtimeConfiguration`.

    Raises `Invalid` for options that cannot be read, or that the service does not let a job set.
    """
    driver = request.get("jobDriver", {}).get("sparkSubmit")
    if driver is None:
        raise Invalid("jobDriver.sparkSubmit is required: this application runs Spark jobs")
    submission = Submission(driver["entryPoint"], list(driver.get("entryPointArguments", [])))
    overrides = request.get("configurationOverrides", {}).get("applicationConfiguration", [])
    for configuration in [*defaults, *overrides]:
        if configuration["classification"] == "spark-defaults":
            submission.conf.update(configuration.get("properties", {}))
    _read_options(submission, driver.get("sparkSubmitParameters", ""))
    for key in _OWNED:
        if key in submission.conf:
            raise Invalid(f"Option '{key}' is not supported")
    return submission


def _read_options(submission: Submission, text: str) -> None:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Invalid(f"sparkSubmitParameters cannot be read: {error}") from error
    options = iter(words)
    for word in options:
        option, equals, value = word.partition("=")
        if not option.startswith("--"):
            raise Invalid(f"sparkSubmitParameters: {word!r} is not an option")
        if not equals:
            value = next(options, "")
        _read_option(submission, option, value)


def _read_option(submission: Submission, option: str, value: str) -> None:
    if option == "--conf":
        key, equals, setting = value.partition("=")
        if not equals:
            raise Invalid(f"sparkSubmitParameters: --conf {value!r} is not key=value")
        submission.conf[key.strip()] = setting
    elif option in _PROPERTIES:
        submission.conf[_PROPERTIES[option]] = value
    elif option == "--class":
        submission.main_class = value
    elif option == "--name":
        submission.name = value
    else:
        raise Invalid(f"Option '{option}' is not supported")
