"""The accepted formats of numbers and timestamps: regular expressions and limits that all readers share.

Most expressions come in pairs. The complete one, a Python `re`, defines what is accepted; `values` and `timestamps` use
it. The plain one, named `PLAIN_...`, in RE2's syntax, matches a subset: strings that Arrow's casts and Python parse to
the same value. `string_columns` uses it for whole columns, and leaves all other strings to the complete one.

All expressions list the digits, because the class for digits in Python also matches those of other scripts.
"""

from __future__ import annotations

import re
from functools import cache
from types import MappingProxyType

from slackwater.sources.fields import EPOCH_MS, EPOCH_S
from slackwater.sources.strptime_format import OFFSET

# Characters that `trim` removes: ASCII whitespace, and the no-break space that spreadsheets and HTML contain.
WHITESPACE = " \t\n\r\f\v\u00a0"

# Regular expression of each separator that a definition may name. A space also matches the two no-break spaces that
# programs write between groups of digits.
SEPARATORS = MappingProxyType({",": "[,]", ".": "[.]", "'": "[']", " ": "[ \u00a0\u202f]", "": ""})

# Accepts "517." and "517.00", because many programs export whole numbers like that. Refuses exponents, and
# "1_000", which Python's `int` accepts.
INTEGER = re.compile(r"[+-]?[0-9]+(\.0*)?")
# Accepts "5.", ".5" and exponents. Refuses "nan", "inf" and "1_000", which Python's `float` accepts.
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Strings of this length or longer are not parsed as integers. 64 bits need 20 characters; the rest is for leading zeros
# and a fraction of zeros. Python's `int` raises another error for strings of more than 4,300 digits.
MAX_INTEGER_STRING = 60
# At most 18 digits always fit into 64 bits.
PLAIN_INTEGER = "-?[0-9]{1,18}"
# Without exponents, which are rare, and without a leading "+", which Arrow refuses in integers.
PLAIN_NUMBER = r"-?[0-9]+(\.[0-9]+)?"

DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# The extended format of ISO 8601 and RFC 3339; seconds are optional. Refuses the basic format (20130308T120000), dates
# by week and hours alone, though `datetime.fromisoformat` accepts them. Second 60 matches, to get a reason of its own.
TIMESTAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<minute>[0-9]{2}:[0-9]{2})"
    rf"(?P<second>:[0-9]{{2}})?(?P<fraction>[.,][0-9]{{1,9}})?(?P<offset>{OFFSET})?"
)
# Limited to existing months, days 1 to 31, hours and minutes, so that few strings make a cast fail: one that does makes
# the cast of its whole column fail. Fractions have at most the six digits of Arrow's microseconds.
PLAIN_DATE = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
PLAIN_LOCAL_TIME = rf"{PLAIN_DATE}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?"
PLAIN_OFFSET = "(Z|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])"

# A plain timestamp in which each digit is replaced by 0.
TIMESTAMP_SHAPE = re.compile(rb"0000-00-00[T ]00:00:00(\.0{1,6})?(?P<offset>Z|[+-]00:?00)?")

# Microseconds in one unit of the epoch formats, and expressions of numbers that decimal128(18) holds exactly: they have
# at most 18 digits, and none that is smaller than a microsecond.
EPOCH_UNITS = {EPOCH_S: 10**6, EPOCH_MS: 10**3}
# With both formats, numbers nearer to zero are seconds: 10^11 s is the year 5138, and 10^11 ms is 1973.
FIRST_MILLISECONDS = 10**11
PLAIN_EPOCHS = {EPOCH_S: r"-?[0-9]{1,12}(\.[0-9]{1,6})?", EPOCH_MS: r"-?[0-9]{1,15}(\.[0-9]{1,3})?"}

# The years 1 to 9999, which Python's datetime covers: in microseconds and in days since 1970, UTC.
MIN_TIMESTAMP_US, MAX_TIMESTAMP_US = -62_135_596_800_000_000, 253_402_300_799_999_999
MIN_DATE_DAYS, MAX_DATE_DAYS = -719_162, 2_932_896


@cache
def separated_number(decimal: str, thousands: str) -> re.Pattern[str]:
    """Return the complete expression of numbers with these separators; its groups are `whole`, `fraction`, `exponent`.

    Groups of digits are optional, but if there are any, each has three digits. The expression also matches strings
    without digits, which `INTEGER` and `NUMBER` refuse afterwards.
    """
    grouped = rf"[0-9]{{1,3}}({SEPARATORS[thousands]}[0-9]{{3}})+|" if thousands else ""
    return re.compile(
        rf"(?P<whole>[+-]?({grouped}[0-9]*))({SEPARATORS[decimal]}(?P<fraction>[0-9]*))?(?P<exponent>[eE][+-]?[0-9]+)?"
    )


def plain_separated_number(decimal: str, thousands: str) -> str:
    """Return the plain expression, for RE2, of numbers with these separators."""
    grouped = f"[0-9]{{1,3}}({SEPARATORS[thousands]}[0-9]{{3}})+|" if thousands else ""
    return f"-?({grouped}[0-9]+)({SEPARATORS[decimal]}[0-9]+)?"
