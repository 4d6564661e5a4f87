"""The files of a local cloud, and the account, region and credentials that it has."""

from __future__ import annotations

from pathlib import Path

REGION = "us-east-1"
ACCOUNT = "000000000000"
HOST = "127.0.0.1"
STATUS_PATH = "/_slackwater/status"
"""The path where a local cloud answers with its root, endpoint and process."""


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
        self.layers = self.base / "layers"  # Lambda layers, unpacked
        self.jobs = self.base / "emr"  # one folder per job run


def environment(endpoint: str, region: str = REGION) -> dict[str, str]:
    """Return the variables that direct any AWS SDK, and the AWS CLI, to `endpoint`."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",  # the emulator's public default
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
    }
