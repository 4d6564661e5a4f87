"""Errors of a check: which of them concern one day, and which all of its days."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from slackwater.errors import DayChanged, ObjectInvalid, ObjectMissing, SlackwaterError, Throttled, Unavailable
from slackwater.late.check.window import CheckedDay
from slackwater.model import first_error

# These may pass within seconds, so the day is checked once more.
TRANSIENT_ERRORS = (DayChanged, ObjectMissing, Throttled, Unavailable)
# These concern one day: its files or objects change during the check, or one of its objects is invalid. Any other error
# may concern all days.
_ERRORS_OF_ONE_DAY = (DayChanged, ObjectMissing, ObjectInvalid)


def as_slackwater_error(error: SlackwaterError | ValidationError) -> SlackwaterError:
    """Return the error; for a stored record that is no valid model, an `ObjectInvalid` that names its field."""
    return error if isinstance(error, SlackwaterError) else ObjectInvalid(first_error(error))


def raise_if_all_failed(checked: Sequence[CheckedDay]) -> None:
    """Raise an error of the checked days if no day could be read, and not only because of the days themselves.

    Only days whose inputs had to be compared count, if there are any: reading the others needs less of AWS.
    """
    compared = [item for item in checked if not item.facts.is_early] or checked
    errors = [item.error for item in compared if item.error]
    shared = [error for error in errors if not isinstance(error, _ERRORS_OF_ONE_DAY)]
    if shared and len(errors) == len(compared):
        raise shared[0]
