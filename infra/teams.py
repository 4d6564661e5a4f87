"""The setting `teams`: who of a team gets messages about changes of the tables that the team owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from infra.setting_types import JSON, EmailAddresses
from slackwater.late.effect import Severity

CREATE_QUEUE: Final = "create"
# "Amazon SNS quotas": filter policies of a topic.
_MOST_SUBSCRIPTIONS = 200
_QueueArn = Annotated[str, StringConstraints(pattern=r"^arn:[\w-]+:sqs:[\w-]+:\d{12}:[\w-]+$")]


class Team(BaseModel):
    """What gets the messages of one team."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    emails: EmailAddresses = ()
    queue: Literal["create"] | _QueueArn | None = None
    """The ARN of a queue of the same region, whose policy lets the topic send messages, or `create` for a new one."""
    severities: Annotated[frozenset[Severity], Field(min_length=1)] = frozenset(Severity)

    @model_validator(mode="after")
    def _has_a_subscriber(self) -> Self:
        if not self.emails and not self.queue:
            raise ValueError("it has neither emails nor a queue: nobody would get its messages")
        return self

    def filter_policy(self, name: str) -> dict[str, list[str]]:
        """Return the filter policy of the team's subscriptions."""
        return {"team": [name], "severity": sorted(self.severities)}


def _check_subscribers(teams: Mapping[str, Team]) -> Mapping[str, Team]:
    # SNS has one subscription for each address of a topic: another filter policy for it is an error.
    found = Counter(address for team in teams.values() for address in (*team.emails, team.queue) if address)
    found.pop(CREATE_QUEUE, None)
    if repeated := sorted(address for address, count in found.items() if count > 1):
        raise ValueError(f"{repeated[0]} is named twice, and can have one subscription: use a mailing list or a topic")
    if found.total() > _MOST_SUBSCRIPTIONS:
        raise ValueError(f"there are {found.total()} addresses and queues; a topic has at most {_MOST_SUBSCRIPTIONS}")
    return teams


# A new queue has the name of its team.
_TeamName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
Teams = Annotated[dict[_TeamName, Team], JSON, AfterValidator(_check_subscribers)]
"""By name, also as JSON in a string."""
