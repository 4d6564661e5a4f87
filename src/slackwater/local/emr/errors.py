"""What the EMR Serverless API refuses, by the names and status codes of its model."""

from __future__ import annotations


class EmrError(Exception):
    """Base of the API's errors."""

    status = 500
    code = "InternalServerException"


class Invalid(EmrError):
    """The request breaks a constraint."""

    status = 400
    code = "ValidationException"


class NotFound(EmrError):
    """The application or job run does not exist."""

    status = 404
    code = "ResourceNotFoundException"


class Conflict(EmrError):
    """The client token was used for another request."""

    status = 409
    code = "ConflictException"
