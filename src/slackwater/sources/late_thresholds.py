"""Thresholds for late data: how much of it makes a finished day run again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from slackwater.model import Model


class LateThresholds(Model):
    """How much late data of a source makes a finished day run again. Reaching one threshold is enough.

    Late data is all data that arrived after the inputs of the published run were listed: new objects, and all rows of a
    file that changed.
    """

    percent: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Late rows in percent of the rows that the published run read from the source."""
    bytes: Annotated[int, Field(ge=0)] | None = None
    """Bytes of late objects."""
    rows: Annotated[int, Field(ge=0)] | None = None
    """Late rows."""
    changed_files: Annotated[int, Field(ge=1)] | None = None
    """Files that the partner changed or removed. Unlike the other thresholds, it does not count new files."""

    @model_validator(mode="after")
    def _check_thresholds(self) -> LateThresholds:
        thresholds = {name: value for name, value in self if value is not None}
        if not thresholds:
            raise ValueError("set at least one of percent, bytes, rows, changed_files")
        # A threshold of 0 is reached by any late data, so another threshold next to it would never decide.
        zero = [name for name, value in thresholds.items() if value == 0]
        if zero and len(thresholds) > 1:
            others = ", ".join(name for name in thresholds if name != zero[0])
            raise ValueError(
                f"{zero[0]}: 0 runs a day again for any late data, so {others} has no effect: "
                f"remove {others}, or set {zero[0]} to a value above 0"
            )
        return self


# The thresholds of a source that sets none.
ANY_LATE_DATA = LateThresholds(rows=0)
