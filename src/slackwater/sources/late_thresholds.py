"""How much late data makes a finished day run again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from slackwater.model import Model


class LateThresholds(Model):
    """How much late data of one source is worth running a finished day again; to reach one of them is enough.

    What counts is what has come since the day's inputs were frozen: new objects, and the whole of a changed file.
    """

    percent: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Rows, in percent of the source's rows that the published run read."""
    bytes: Annotated[int, Field(ge=0)] | None = None
    rows: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _do_not_contradict(self) -> LateThresholds:
        given = {name: value for name, value in self if value is not None}
        if not given:
            raise ValueError("name at least one of percent, bytes, rows")
        zero = [name for name, value in given.items() if value == 0]
        if zero and len(given) > 1:
            others = ", ".join(name for name in given if name != zero[0])
            raise ValueError(
                f"{zero[0]}: 0 runs a day again for any late data, so {others} can never decide: "
                f"remove {others}, or give {zero[0]} a value above 0"
            )
        return self


ANY_LATE_DATA = LateThresholds(rows=0)
"""What holds for a source that names no thresholds."""
