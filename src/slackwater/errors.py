"""Every error that Slackwater raises on purpose.

SlackwaterError
├── InputError            the user's input is wrong: the message names field, file and remedy (exit code 2)
│   ├── DefinitionError   a source, a pipeline or the project is not valid
│   ├── UnknownName       there is no source, pipeline, step or token with this name
│   ├── VersionRemoved    a published version of a day cannot be read any more
│   └── DataError         a file or an event cannot be read by its definition
│       └── InputInvalid  a rule of severity `invalidate` has failed
├── AccessDenied          the caller is not allowed to do this
├── CloudError            AWS, or the local cloud, refused or failed (exit code 1)
│   ├── ObjectMissing     an object does not exist, but should
│   ├── ObjectInvalid     an object or a record has content that Slackwater does not write
│   ├── NotDeployed       some or all of the stacks are not deployed
│   ├── Throttled         the service asks for fewer calls: try again later
│   ├── Unavailable       AWS or the network failed for a short time: try again later
│   └── ResponseLost      no response arrived: the call may or may not have been executed
├── PartnerError          a partner's server refused or failed (exit code 1)
│   ├── FileVanished      a listed file no longer exists when it is fetched
│   ├── FileTooLarge      a file exceeds the limit of its reader
│   └── OutboundRefused   connections to this address are not allowed
├── DayChanged            another execution changed the day's record at the same time
├── RunFailed             a run ended without publishing its day (exit code 1)
│   └── PullFailed        files of a pull could not be fetched, or all of its events were rejected
├── StillRunning          an execution has not ended in the time that the caller waits; also a `TimeoutError`
└── AuditFailed           a staged output failed the audit before publishing (exit code 1)
    └── Superseded  a later attempt has published the day first
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SlackwaterError(Exception):
    """Base class: catch it to catch every error that Slackwater raises on purpose."""

    exit_code = 1


class InputError(SlackwaterError):
    """The user's input is wrong; the message names field, file and remedy."""

    exit_code = 2


class DefinitionError(InputError):
    """A source, a pipeline or the project is not valid."""


class UnknownName(InputError):
    """There is no source, pipeline, step or token with this name."""


class VersionRemoved(InputError):
    """A published version of a day cannot be read any more, because retention has removed it."""


class DataError(InputError):
    """A file or an event cannot be read by its definition."""


class InputInvalid(DataError):
    """A rule of severity `invalidate` has failed: nobody should use the input."""

    def __init__(self, message: str, *, input_name: str = "") -> None:
        """`input_name` is the source or the table that the rule has checked."""
        super().__init__(message)
        self.input_name = input_name


class AccessDenied(SlackwaterError):
    """The caller is not allowed to do this."""


class CloudError(SlackwaterError):
    """AWS, or the local cloud, refused or failed."""


class ObjectMissing(CloudError):
    """An object does not exist, but should."""


class ObjectInvalid(CloudError):
    """An object or a record has content that Slackwater does not write."""


class NotDeployed(CloudError):
    """Some or all of the stacks are not deployed."""


class Throttled(CloudError):
    """The service asks for fewer calls: try again later."""


class Unavailable(CloudError):
    """AWS or the network failed for a short time: try again later. The call may have been executed."""


class ResponseLost(CloudError):
    """No response arrived: the call may or may not have been executed."""


class PartnerError(SlackwaterError):
    """A partner's server refused or failed."""


class FileVanished(PartnerError):
    """A listed file no longer exists when it is fetched."""


class FileTooLarge(PartnerError):
    """A partner's file exceeds the limit of its reader."""


class OutboundRefused(PartnerError):
    """Connections to this address are not allowed: it is private, or does not resolve."""


class DayChanged(SlackwaterError):
    """Another execution changed the day's record at the same time: read it again and decide again."""


class RunFailed(SlackwaterError):
    """A run ended without publishing its day."""


class PullFailed(RunFailed):
    """Files of a pull could not be fetched, or all of its events were rejected. The others are stored."""

    def __init__(self, message: str, totals: Mapping[str, Any]) -> None:
        """`totals` are those of the pull, as `Client.pull` returns them."""
        super().__init__(message)
        self.totals = totals


class StillRunning(SlackwaterError, TimeoutError):
    """An execution has not ended in the time that the caller waits for it. It goes on."""


class AuditFailed(SlackwaterError):
    """A staged output failed the audit before publishing."""


class Superseded(AuditFailed):
    """A later attempt has published the day first."""
