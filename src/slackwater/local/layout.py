"""Where the local cloud keeps what it knows, below a project's root, and who it says it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

REGION = "us-east-1"
ACCOUNT = "000000000000"
ACCESS_KEY = "test"
SECRET_KEY = "test"  # noqa: S105 - the emulator's public default, which opens nothing
HOST = "127.0.0.1"
STATUS_PATH = "/_slackwater/status"
"""Where a local cloud says which one it is."""


@dataclass(frozen=True)
class Layout:
    """The files of one local cloud."""

    root: Path
    """The project's folder."""

    @property
    def base(self) -> Path:
        """The folder that holds everything below."""
        return self.root / ".slackwater"

    @property
    def endpoint_file(self) -> Path:
        """Names the cloud that was started last: endpoint, process, region, account."""
        return self.base / "cloud.json"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.base / "cloud.log"

    @property
    def state(self) -> Path:
        """One JSON file per emulated service."""
        return self.base / "state"

    @property
    def objects(self) -> Path:
        """The objects in S3."""
        return self.base / "s3"

    @property
    def jars(self) -> Path:
        """What the EMR image brings, and PyPI's Spark does not."""
        return self.base / "jars"

    @property
    def layers(self) -> Path:
        """Lambda layers, unpacked."""
        return self.base / "layers"

    @property
    def jobs(self) -> Path:
        """One folder per EMR Serverless job run."""
        return self.base / "emr"


def environment(endpoint: str, region: str = REGION) -> dict[str, str]:
    """Return the variables that send any AWS SDK, and the AWS CLI, to `endpoint`."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
    }
