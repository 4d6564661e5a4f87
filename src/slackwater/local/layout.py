"""The files of a local cloud, and the account, region and credentials that it has."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

REGION = "us-east-1"
ACCOUNT = "000000000000"
HOST = "127.0.0.1"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The Python that runs functions and, unless they name another one, Spark jobs."""
ARCHITECTURE = "arm64" if platform.machine().lower() in {"arm64", "aarch64"} else "x86_64"
"""The processor that runs functions and Spark jobs, in Lambda's notation."""
AIRFLOW = "local"
"""The name of the Airflow environment that `slackwater airflow up` runs."""
# The emulator's public keys of the account's root user, who may do everything.
ROOT_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
STATUS_PATH = "/_slackwater/status"
"""The path where a local cloud answers with its root, endpoint and process."""
SAVE_PATH = "/_slackwater/save"
"""The path where a local cloud answers once all that earlier requests have changed is on disk."""


class Layout:
    """The files of the local cloud of one project; `root` is the project's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = root / ".slackwater"
        self.endpoint_file = self.base / "cloud.json"  # endpoint, process, region and account of the last start
        self.log = self.base / "cloud.log"
        self.state = self.base / "state"  # one JSON file per emulated service
        self.objects = self.base / "s3"
        self.jars = self.base / "jars"  # the parts of EMR's image that PyPI's Spark lacks
        self.jobs = self.base / "emr"  # one folder per job run
        self.airflow = self.base / "airflow" / "api.json"  # URL and login of a running Airflow


def environment(endpoint: str, region: str = REGION) -> dict[str, str]:
    """Return the variables that direct any AWS SDK, and the AWS CLI, to `endpoint`, with the root user's keys."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        **ROOT_CREDENTIALS,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        # MWAA's SDK calls `env.` before the host of the endpoint, which is an address here.
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
    }
