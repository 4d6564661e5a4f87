"""The formats of a partner's files, as a definition names them."""

from __future__ import annotations

import codecs
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from slackwater.model import Model


def _mark(value: str) -> str:
    if value != "\t" and not (value.isascii() and value.isprintable()):
        raise ValueError(f"{value!r} cannot part cells: use a tab, or a character of ASCII that can be seen")
    return value


OneCharacter = Annotated[str, StringConstraints(min_length=1, max_length=1), AfterValidator(_mark)]


def _encoding(value: str) -> str:
    try:
        b"?".decode(value, "replace")  # which refuses what is no encoding of text, such as base64
        return codecs.lookup(value).name
    except LookupError as error:
        raise ValueError(f"no such encoding: {value!r} (use a name such as utf-8, latin-1, cp1252, utf-16)") from error


class Csv(Model):
    """Text with a record on a line."""

    type: Literal["csv"] = "csv"
    delimiter: OneCharacter = ","
    quote: OneCharacter | None = '"'
    """Around cells that hold a delimiter or a line's end; doubled within them."""
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    skip_lines: Annotated[int, Field(ge=0)] = 0
    """Lines before the header."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a file without a header."""

    @model_validator(mode="after")
    def _is_readable(self) -> Csv:
        if self.delimiter == self.quote:
            raise ValueError(f"delimiter {self.delimiter!r}: the quote cannot part cells")
        twice = {name for name in self.columns if self.columns.count(name) > 1}
        if twice:
            raise ValueError(f"columns: two of one name: {', '.join(sorted(twice))}")
        return self


class Json(Model):
    """One JSON array of objects."""

    type: Literal["json"] = "json"


class Ndjson(Model):
    """A JSON object on each line."""

    type: Literal["ndjson"] = "ndjson"


class Parquet(Model):
    """Apache Parquet."""

    type: Literal["parquet"] = "parquet"


class Xlsx(Model):
    """A sheet of an Excel workbook, its names in the first row that is not empty."""

    type: Literal["xlsx"] = "xlsx"
    sheet: str | None = None
    """The first one when none is named."""


def _shorthand(value: Any) -> Any:
    if value == "tsv":
        return {"type": "csv", "delimiter": "\t"}
    if isinstance(value, dict) and value.get("type") == "tsv":
        return {"delimiter": "\t", **value, "type": "csv"}
    return {"type": value} if isinstance(value, str) else value


class _Tsv(Csv):
    """A CSV file with tabs between its cells."""

    type: Literal["tsv"]  # type: ignore[assignment]


_Written = Literal["csv", "tsv", "json", "ndjson", "parquet", "xlsx"] | Csv | _Tsv | Json | Ndjson | Parquet | Xlsx

FileFormat = Annotated[
    Annotated[Csv | Json | Ndjson | Parquet | Xlsx, Field(discriminator="type")],
    BeforeValidator(_shorthand, json_schema_input_type=_Written),
]
"""`csv`, `tsv`, `json`, `ndjson`, `parquet`, `xlsx`, or one of them as `type` with its options.

A file may be compressed by gzip, zip, zstd or bz2: its first bytes tell.
"""
