"""Download the beginning of one file, as a sample."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from time import sleep as wait_for
from typing import BinaryIO

from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.receiver.partners.http_session import HttpSession, expect_ok


def download_start(
    url: str, into: BinaryIO, *, outbound: Outbound, max_bytes: int, sleep: Callable[[float], None] = wait_for
) -> bool:
    """Write at most the first `max_bytes` of the file at `url`, and return whether that is the whole file.

    Failures that may pass are retried. Raises `OutboundRefused`, or another `PartnerError`.
    """
    with closing(HttpSession(url, credentials=None, transport=GuardedTransport(outbound), sleep=sleep)) as session:
        for attempt in session.attempts():
            with attempt, session.request("GET", url) as response:
                expect_ok(url, response)
                into.seek(0)
                into.truncate()
                for block in response.iter_bytes():
                    left = max_bytes - into.tell()
                    into.write(block[:left])
                    if len(block) > left:
                        return False
                return True
    raise AssertionError("the last attempt raises")
