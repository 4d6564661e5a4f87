"""Every error that Slackwater raises on purpose.

SlackwaterError
├── InputError            what the user gave is wrong: the message names field, file and remedy (exit 2)
│   ├── DefinitionError   a source, a pipeline or the project that holds them
│   ├── UnknownName       a source, pipeline, step or token that does not exist
│   └── DataError         a file or event that cannot be read as its definition says
├── AccessDenied          the caller may not do this
├── CloudError            AWS, or the local cloud, refused or failed (exit 1)
│   ├── ObjectMissing     an object that should be there is not
│   ├── NotDeployed       the stacks are not there, or not all of them
│   ├── Throttled         worth trying again later
│   └── AnswerLost        the answer to a call was lost: whether it was done is not known
├── PartnerError          a partner's server refused or failed (exit 1)
│   ├── FileVanished      a listed file was gone when it was fetched
│   ├── FileTooLarge      a file is larger than its reader takes
│   └── OutboundRefused   an address that no connection is made to
├── DayChanged            another execution changed the day in between
├── RunFailed             a run ended without publishing its day (exit 1)
└── AuditFailed           a staged output was not fit to publish (exit 1)
"""

from __future__ import annotations


class SlackwaterError(Exception):
    """Base of all: catch this to catch everything Slackwater raises on purpose."""

    exit_code = 1


class InputError(SlackwaterError):
    """What the user gave is wrong; the message names field, file and remedy."""

    exit_code = 2


class DefinitionError(InputError):
    """A source, a pipeline or the project that holds them is not well defined."""


class UnknownName(InputError):
    """A source, pipeline, step or token of that name does not exist."""


class DataError(InputError):
    """A file or event cannot be read as its definition says."""


class AccessDenied(SlackwaterError):
    """The caller may not do this."""


class CloudError(SlackwaterError):
    """AWS, or the local cloud, refused or failed."""


class ObjectMissing(CloudError):
    """An object that should be there is not."""


class NotDeployed(CloudError):
    """The stacks are not there, or not all of them."""


class Throttled(CloudError):
    """The service asks to be called less often: worth trying again later."""


class AnswerLost(CloudError):
    """The answer to a call was lost: whether it was done is not known."""


class PartnerError(SlackwaterError):
    """A partner's server refused or failed."""


class FileVanished(PartnerError):
    """A listed file was gone when it was fetched."""


class FileTooLarge(PartnerError):
    """A partner's file is larger than what reads it can take."""


class OutboundRefused(PartnerError):
    """An address that no connection is made to: private, not allowed, or none at all."""


class DayChanged(SlackwaterError):
    """Another execution changed the day's record in between: read it again and decide anew."""


class RunFailed(SlackwaterError):
    """A run ended without publishing its day."""


class AuditFailed(SlackwaterError):
    """A staged output was not fit to publish."""
