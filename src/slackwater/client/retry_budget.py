"""A limit of the retries of a client, so that an outage does not multiply its load."""

from __future__ import annotations

import threading


class RetryBudget:
    """Retries that a client has left, over all of its requests and threads.

    Without it, each of many requests would be repeated as often as one is: an API that is overloaded would get five
    times its load. A client begins with 10 retries, and every 10 requests that succeed allow one more, up to 10. So in
    a long outage, only few requests are repeated, and each one fails at once.
    """

    _MOST, _PER_SUCCESS = 10.0, 0.1

    def __init__(self) -> None:
        self._left = self._MOST
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Return whether a failed request may be repeated, and count the retry."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def succeeded(self) -> None:
        """Count a request that has succeeded."""
        with self._lock:
            self._left = min(self._MOST, self._left + self._PER_SUCCESS)
