"""States that wait for a task token: lets them go on, or fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated

# The state has ended: it has timed out, or was answered, or its execution was stopped or deleted.
_ENDED = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"})


@dataclass(frozen=True)
class TaskTokens:
    """`slackwater.state.waits.WaitingTasks` over a Step Functions client."""

    states: Any

    def succeed(self, token: str, output: Mapping[str, str]) -> bool:
        """Let the execution go on with this output of its state; return False if the state has ended before.

        Raises `CloudError`.
        """
        return _accepted(lambda: self.states.send_task_success(taskToken=token, output=json.dumps(output)))

    def fail(self, token: str, *, error: str, cause: str) -> bool:
        """Let the state fail; return False if it has ended before. Raises `CloudError`."""
        return _accepted(lambda: self.states.send_task_failure(taskToken=token, error=error, cause=cause))


def _accepted(answer: Callable[[], object]) -> bool:
    with translated("answer a state that waits"):
        try:
            answer()
        except ClientError as error:
            if code_of(error) not in _ENDED:
                raise
            return False
    return True
