"""How numbers and timestamps are written: the regular expressions and limits that all readers share.

Expressions come in pairs. The complete one, a Python `re`, decides what is accepted; `values` and `timestamps` use it.
The plain one, in RE2's syntax, matches a subset: strings that Arrow's casts and Python parse to the same value.
`string_columns` uses it for whole columns, and leaves all other strings to the complete one.
"""

from __future__ import annotations

import re
from functools import cache
from types import MappingProxyType

from slackwater.sources.fields import EPOCH_MS, EPOCH_S
from slackwater.sources.strptime_format import OFFSET

# Characters that `trim` removes.
WHITESPACE = " \t\n\r\f\v\u00a0"

# Expression of each separator that a definition may name. A space also stands for the no-break spaces that programs
# write between groups of digits.
SEPARATORS = MappingProxyType({",": "[,]", ".": "[.]", "'": "[']", " ": "[ \u00a0\u202f]", "": ""})

INTEGER = re.compile(r"[+-]?[0-9]+(\.0*)?")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Strings of this length or longer are not parsed as integers.
MAX_INTEGER_STRING = 60
# At most 18 digits always fit into 64 bits.
PLAIN_INTEGER = "-?[0-9]{1,18}"
PLAIN_NUMBER = r"-?[0-9]+(\.[0-9]+)?"

DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
TIMESTAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<minute>[0-9]{2}:[0-9]{2})"
    rf"(?P<second>:[0-9]{{2}})?(?P<fraction>[.,][0-9]{{1,9}})?(?P<offset>{OFFSET})?"
)
PLAIN_DATE = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
PLAIN_LOCAL_TIME = rf"{PLAIN_DATE}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?"
PLAIN_OFFSET = "(Z|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])"

# Microseconds in one unit of the epoch formats, and numbers that stay exact as decimal128(18).
EPOCH_UNITS = {EPOCH_S: 10**6, EPOCH_MS: 10**3}
PLAIN_EPOCHS = {EPOCH_S: r"-?[0-9]{1,12}(\.[0-9]{1,6})?", EPOCH_MS: r"-?[0-9]{1,15}(\.[0-9]{1,3})?"}

# The years 1 to 9999, which Python's datetime covers: in microseconds and in days since 1970, UTC.
MIN_TIMESTAMP_US, MAX_TIMESTAMP_US = -62_135_596_800_000_000, 253_402_300_799_999_999
MIN_DATE_DAYS, MAX_DATE_DAYS = -719_162, 2_932_896


@cache
def separated_number(decimal: str, thousands: str) -> re.Pattern[str]:
    """Return the complete expression of numbers with these separators, as `whole`, `fraction` and `exponent`."""
    grouped = rf"[0-9]{{1,3}}({SEPARATORS[thousands]}[0-9]{{3}})+|" if thousands else ""
    return re.compile(
        rf"(?P<whole>[+-]?({grouped}[0-9]*))({SEPARATORS[decimal]}(?P<fraction>[0-9]*))?(?P<exponent>[eE][+-]?[0-9]+)?"
    )


def plain_separated_number(decimal: str, thousands: str) -> str:
    """Return the plain expression of numbers with these separators."""
    grouped = f"[0-9]{{1,3}}({SEPARATORS[thousands]}[0-9]{{3}})+|" if thousands else ""
    return f"-?({grouped}[0-9]+)({SEPARATORS[decimal]}[0-9]+)?"
