"""The formats of pulled files, and their options."""

from __future__ import annotations

import codecs
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from slackwater.model import Model


def _check_separator(value: str) -> str:
    if value != "\t" and not (value.isascii() and value.isprintable()):
        raise ValueError(f"{value!r} cannot separate cells: use a tab or a printable ASCII character")
    return value


OneCharacter = Annotated[str, StringConstraints(min_length=1, max_length=1), AfterValidator(_check_separator)]


def _check_encoding(value: str) -> str:
    try:
        # `lookup` alone also accepts codecs that do not decode to strings, such as base64: `decode` refuses them.
        b"?".decode(value, "replace")
        return codecs.lookup(value).name
    except LookupError as error:
        raise ValueError(f"no such encoding: {value!r} (use a name such as utf-8, latin-1, cp1252, utf-16)") from error


class Csv(Model):
    """A text file with one record per line."""

    type: Literal["csv"] = "csv"
    delimiter: OneCharacter = ","
    quote: OneCharacter | None = '"'
    """Encloses cells that contain a delimiter or a line break. Within such a cell the character is doubled."""
    encoding: Annotated[str, AfterValidator(_check_encoding)] = "utf-8"
    skip_lines: Annotated[int, Field(ge=0)] = 0
    """Number of lines before the header."""
    columns: tuple[str, ...] = ()
    """Names of the columns, for files without a header."""

    @model_validator(mode="after")
    def _check_options(self) -> Csv:
        if self.delimiter == self.quote:
            raise ValueError(f"delimiter and quote are both {self.delimiter!r}: use different characters")
        duplicates = {name for name in self.columns if self.columns.count(name) > 1}
        if duplicates:
            raise ValueError(f"columns: duplicate names: {', '.join(sorted(duplicates))}")
        return self


class Json(Model):
    """A file with one JSON array of objects."""

    type: Literal["json"] = "json"


class Ndjson(Model):
    """A file with one JSON object per line."""

    type: Literal["ndjson"] = "ndjson"


class Parquet(Model):
    """An Apache Parquet file."""

    type: Literal["parquet"] = "parquet"


class Xlsx(Model):
    """A sheet of an Excel workbook. Its first row that is not empty is the header."""

    type: Literal["xlsx"] = "xlsx"
    sheet: str | None = None
    """Name of the sheet. The default is the first visible sheet."""


def _expand_shorthand(value: Any) -> Any:
    """Expand `csv` to `{type: csv}`, and `tsv` to a CSV file with tabs."""
    if value == "tsv":
        return {"type": "csv", "delimiter": "\t"}
    if isinstance(value, dict) and value.get("type") == "tsv":
        return {"delimiter": "\t", **value, "type": "csv"}
    return {"type": value} if isinstance(value, str) else value


# Only for the JSON Schema, so that editors accept `type: tsv`; validation replaces it by a `Csv`.
class _Tsv(Csv):
    """A CSV file with tabs between its cells."""

    type: Literal["tsv"]  # type: ignore[assignment]


# What a user may write; validation turns it into one of the models.
_FileFormatInput = (
    Literal["csv", "tsv", "json", "ndjson", "parquet", "xlsx"] | Csv | _Tsv | Json | Ndjson | Parquet | Xlsx
)

FileFormat = Annotated[
    Annotated[Csv | Json | Ndjson | Parquet | Xlsx, Field(discriminator="type")],
    BeforeValidator(_expand_shorthand, json_schema_input_type=_FileFormatInput),
]
"""`csv`, `tsv`, `json`, `ndjson`, `parquet`, `xlsx`, or one of them as `type` with its options.

A file may be compressed with gzip, zip, zstd or bz2: the reader detects that from its first bytes.
"""
