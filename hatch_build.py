"""Adds the files that `slackwater deploy` needs to the wheel. An editable install uses them in the clone."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# `slackwater.project.installation` finds them.
DEPLOYED = (
    *("infra", "lambdas", "glue_jobs", "step_functions", "mwaa_dags", "cdk.json"),
    *("examples/orders", "requirements/layer.txt", "requirements/archive.txt"),
    *("requirements/archive-snowflake.txt", "requirements/airflow.txt", "requirements/tools"),
    "docs",  # `slackwater docs serve` shows them
)


class DeployedFiles(BuildHookInterface[Any]):
    """Adds the files to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, unless the wheel is that of an editable install."""
        if version == "standard":
            build_data["force_include"] |= {name: f"slackwater/_deployed/{name}" for name in DEPLOYED}
