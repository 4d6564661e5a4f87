"""How numbers and booleans are written: with leading zeros, with separators, with more digits than a double has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from slackwater.sources.fields import FieldDefinition, FieldType

# Pairs of strings that mean true and false, apart from `true` and `false`.
BOOLEAN_PAIRS = (("yes", "no"), ("y", "n"), ("t", "f"))
INTEGER = re.compile(r"[+-]?[0-9]+")
# Without what int64 drops: leading zeros and a plus.
PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
# Either a fraction of three digits or groups of thousands.
FRACTION_OR_GROUPS = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+")
# Every decimal number with this many digits is different from its neighbours as a double.
_EXACT_DIGITS = 15
_SPACES = " \u00a0\u202f"
_WITH_SEPARATORS = re.compile(rf"\s*[+-]?[0-9][0-9.,'{_SPACES}]*([eE][+-]?[0-9]+)?\s*")


def is_rounded(number: str) -> bool:
    """Return whether a number in decimal digits has more digits than a double can hold.

    Digits that programs add when they write a double, such as 39.020000000000003, do not count.
    """
    if len(number) <= _EXACT_DIGITS and "e" not in number.lower():
        return False
    exact, double = Decimal(number), float(number)
    return exact not in {Decimal(repr(double)), Decimal(f"{double:.17g}")}


def separated_fields(strings: Sequence[str]) -> list[FieldDefinition]:
    """Return the definitions of numbers with the separators that occur; each still has to be tried on all strings."""
    if not all(map(_WITH_SEPARATORS.fullmatch, strings)):
        return []
    characters = set("".join(string.strip() for string in strings))
    present = [separator for separator in ",. '" if characters & set(_SPACES if separator == " " else separator)]
    fields = [_number_field(FieldType.DOUBLE, decimal=",", thousands="")] if "," in present else []
    for thousands in present:
        decimals = [separator for separator in ".," if separator in present and separator != thousands]
        fields += [_number_field(FieldType.DOUBLE, decimal=decimal, thousands=thousands) for decimal in decimals]
        if not decimals:
            unused = "," if thousands == "." else "."
            fields.append(_number_field(FieldType.INT64, decimal=unused, thousands=thousands))
    return fields


def _number_field(field_type: FieldType, **separators: str) -> FieldDefinition:
    return FieldDefinition.model_validate({"type": field_type, **separators})
