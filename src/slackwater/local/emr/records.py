"""What the service keeps of applications and job runs, and how the API shows it."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import Any

APPLICATION_IDLE = ("CREATED", "STOPPED")
FINAL = ("SUCCESS", "FAILED", "CANCELLED")
_STATE_DETAILS_LIMIT = 256
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_id() -> str:
    """Return an identifier in the form that the API gives: `00` and fourteen lower-case letters and digits."""
    return "00" + "".join(secrets.choice(_ALPHABET) for _ in range(14))


def shortened(details: str) -> str:
    """Return `details` as `stateDetails` can hold them: 1 to 256 characters."""
    return details if len(details) <= _STATE_DETAILS_LIMIT else details[: _STATE_DETAILS_LIMIT - 3] + "..."


@dataclass
class Application:
    """An application: `settings` are the members that CreateApplication and UpdateApplication take."""

    id: str
    account: str
    region: str
    settings: dict[str, Any]
    tags: dict[str, str]
    client_token: str
    state: str = "CREATED"
    state_details: str = ""
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    idle_since: float = field(default_factory=time.time)

    @property
    def arn(self) -> str:
        """Its Amazon resource name."""
        return f"arn:aws:emr-serverless:{self.region}:{self.account}:/applications/{self.id}"

    def to(self, state: str, details: str = "") -> None:
        """Go to another state."""
        self.state, self.state_details, self.updated_at = state, details, time.time()

    def summary(self) -> dict[str, Any]:
        """As ListApplications shows it."""
        named = ("name", "releaseLabel", "type", "architecture")
        shown: dict[str, Any] = {key: self.settings[key] for key in named if key in self.settings}
        shown |= {"id": self.id, "arn": self.arn, "state": self.state, "createdAt": self.created_at}
        shown |= {"updatedAt": self.updated_at}
        return shown | ({"stateDetails": self.state_details} if self.state_details else {})

    def document(self) -> dict[str, Any]:
        """As GetApplication shows it."""
        shown = self.summary() | self.settings | {"applicationId": self.id, "tags": self.tags}
        shown.pop("id")
        return shown


@dataclass
class JobRun:
    """A job run: `request` is what StartJobRun was given."""

    id: str
    application: str
    application_arn: str
    account: str
    request: dict[str, Any]
    release_label: str
    tags: dict[str, str]
    state: str = "SUBMITTED"
    state_details: str = "The job run was submitted"
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    attempt: int = 1
    attempt_created_at: float = field(default_factory=time.time)
    started_at: float | None = None
    ended_at: float | None = None
    queued_at: float | None = None
    queued_seconds: float = 0.0
    run_seconds: float = 0.0
    used: dict[str, float] | None = None
    billed: dict[str, float] | None = None
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """The attempts that ended before this one, as ListJobRunAttempts shows them."""

    @property
    def arn(self) -> str:
        """Its Amazon resource name."""
        return f"{self.application_arn}/jobruns/{self.id}"

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL

    @property
    def timeout_minutes(self) -> int:
        """Minutes that it may run; 0 for as long as it takes."""
        minutes: int = self.request.get("executionTimeoutMinutes", 0 if self.mode == "STREAMING" else 720)
        return minutes

    @property
    def mode(self) -> str:
        """BATCH or STREAMING."""
        mode: str = self.request.get("mode", "BATCH")
        return mode

    def to(self, state: str, details: str) -> None:
        """Go to another state, and note when."""
        now = time.time()
        if self.state == "QUEUED" and self.queued_at is not None:
            self.queued_seconds += now - self.queued_at
        if state == "QUEUED":
            self.queued_at = now
        if state == "RUNNING" and self.started_at is None:
            self.started_at = now
        if state in FINAL:
            self.ended_at = now
        self.state, self.state_details, self.updated_at = state, shortened(details), now

    def next_attempt(self) -> None:
        """Begin another attempt."""
        self.attempts.append(self.attempt_summary())
        self.attempt += 1
        self.attempt_created_at = time.time()

    def _common(self) -> dict[str, Any]:
        shown = {
            "applicationId": self.application,
            "arn": self.arn,
            "createdBy": f"arn:aws:iam::{self.account}:user/local",
            "updatedAt": self.updated_at,
            "executionRole": self.request["executionRoleArn"],
            "state": self.state,
            "stateDetails": self.state_details,
            "releaseLabel": self.release_label,
            "mode": self.mode,
            "attempt": self.attempt,
        }
        return shown | ({"name": self.request["name"]} if "name" in self.request else {})

    def summary(self) -> dict[str, Any]:
        """As ListJobRuns shows it."""
        attempt = {"attemptCreatedAt": self.attempt_created_at, "attemptUpdatedAt": self.updated_at}
        return self._common() | attempt | {"id": self.id, "createdAt": self.created_at, "type": "SPARK"}

    def attempt_summary(self) -> dict[str, Any]:
        """As ListJobRunAttempts shows it."""
        created = {"jobCreatedAt": self.created_at, "createdAt": self.attempt_created_at}
        return self._common() | created | {"id": self.id, "type": "SPARK"}

    def document(self) -> dict[str, Any]:
        """As GetJobRun shows it."""
        optional = {
            "executionIamPolicy": self.request.get("executionIamPolicy"),
            "configurationOverrides": self.request.get("configurationOverrides"),
            "retryPolicy": self.request.get("retryPolicy"),
            "startedAt": self.started_at,
            "endedAt": self.ended_at,
            "totalResourceUtilization": self.used,
            "billedResourceUtilization": self.billed,
        }
        return (
            self._common()
            | {"jobRunId": self.id, "createdAt": self.created_at, "jobDriver": self.request["jobDriver"]}
            | {"tags": self.tags, "executionTimeoutMinutes": self.timeout_minutes}
            | {"totalExecutionDurationSeconds": round(self.run_seconds)}
            | {"queuedDurationMilliseconds": round(self.queued_seconds * 1000)}
            | {"attemptCreatedAt": self.attempt_created_at, "attemptUpdatedAt": self.updated_at}
            | {key: value for key, value in optional.items() if value is not None}
        )

    def saved(self) -> dict[str, Any]:
        """As JSON, for the next process."""
        return asdict(self)
