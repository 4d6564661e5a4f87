"""What each input of a load step is written to."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.errors import DefinitionError
from slackwater.steps.files import INPUT


def expect_own_targets(inputs: Sequence[str], target: str, *, field: str, example: str) -> None:
    """Raise `DefinitionError` if several inputs would be written to one target.

    `field` is the parameter that names the target, and `example` a value that names one for each input.
    """
    if len(inputs) > 1 and INPUT not in target:
        raise DefinitionError(
            f"{field}: the inputs {' and '.join(inputs)} would replace each other in {target!r}: name {INPUT} in it, "
            f"such as {example}"
        )
