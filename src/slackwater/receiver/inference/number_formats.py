"""How strings may write numbers: their separators, and digits that a double cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from slackwater.sources.fields import FieldDefinition, FieldType

_INT64, _DOUBLE = FieldDefinition(type=FieldType.INT64), FieldDefinition(type=FieldType.DOUBLE)
# Every decimal number with this many digits is different from its neighbours as a double.
_EXACT_DIGITS = 15


def is_rounded(number: str) -> bool:
    """Return whether a number in decimal digits has more digits than a double can hold.

    Digits that programs add when they write a double, such as 39.020000000000003, do not count.
    """
    if len(number) <= _EXACT_DIGITS and "e" not in number.lower():
        return False
    exact, double = Decimal(number), float(number)
    return exact not in {Decimal(repr(double)), Decimal(f"{double:.17g}")}


def separated_fields(texts: Sequence[str]) -> Iterator[FieldDefinition]:
    """Yield the definitions of numbers with the separators that occur; each still has to be tried on all strings."""
    characters = set("".join(texts).replace("\u00a0", " ").replace("\u202f", " "))
    present = [separator for separator in ",. '" if separator in characters]
    for thousands in ("", *present):
        decimals = [separator for separator in ",." if separator in present and separator != thousands]
        for decimal in decimals if thousands else set(decimals) - {"."}:
            yield _DOUBLE.model_copy(update={"decimal": decimal, "thousands": thousands})
        if thousands and not decimals:
            yield _INT64.model_copy(update={"decimal": "," if thousands == "." else ".", "thousands": thousands})
