"""The setting `openlineage`: which receiver gets events about runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from infra.setting_types import JSON
from slackwater.sources.pull_config import CredentialsReference


class OpenLineage(BaseModel):
    """A receiver of OpenLineage, such as Marquez."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s?#@]+$")]
    """Events are sent to the path `/api/v1/lineage` below it. A private host has to be in `outbound_allow`."""
    api_key_secret: CredentialsReference | None = None
    """`secretsmanager:<name>` or `ssm:<name>`: a JSON object with a `token`, or a `username` and a `password`."""
    namespace: Annotated[str, StringConstraints(pattern=r"^[^\s]{1,200}$")] | None = None
    """Of the jobs; by default the prefix of the deployment."""


AnyOpenLineage = Annotated[OpenLineage | None, JSON]
"""The setting, also as JSON in a string."""
