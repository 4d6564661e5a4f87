"""The rate at which an account may call an operation: a token bucket."""

from __future__ import annotations

import time
from collections.abc import Callable

from slackwater.local.emulator import Scope


class RateLimit:
    """Allows `rate` calls a second, and up to `burst` at once, for each account and region."""

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        # How many calls an account may make, and when that was counted.
        self._tokens: dict[Scope, tuple[float, float]] = {}

    def take(self, scope: Scope) -> bool:
        """Count a call, unless the account makes too many. Return whether it is allowed."""
        now = self._clock()
        tokens, counted = self._tokens.get(scope, (self._burst, now))
        tokens = min(self._burst, tokens + (now - counted) * self._rate)
        if tokens < 1:
            return False
        self._tokens[scope] = tokens - 1, now
        return True
