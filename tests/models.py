"""What the stateful models of late data share: their number of examples, and a pool without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hypothesis import settings


def model_settings(*, examples: int, steps: int) -> settings:
    """Return the settings of a model: always the same examples, or other ones each time with the profile `long`."""
    if settings.get_current_profile_name() == "long":
        return settings(stateful_step_count=2 * steps)
    return settings(derandomize=True, max_examples=examples, stateful_step_count=steps, print_blob=False)


class InlinePool:
    """A pool that calls its functions at once, so that the order of the writes is always the same."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> InlinePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return iter([function(*arguments) for arguments in zip(*items, strict=True)])
