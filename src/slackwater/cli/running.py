"""Shows the progress of executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from slackwater.aws.executions.state_machines import ExecutionView
from slackwater.progress import ProgressBoard, TaskState

# The other types (Choice, Pass, Succeed, Fail) take no time, so they are not shown.
_SHOWN_TYPES = frozenset({"Task", "Map", "Parallel", "Wait"})


@contextmanager
def shown_states() -> Iterator[Callable[[ExecutionView], None]]:
    """Yield a function that shows the states of an execution, on a board that is open until the end of the block."""
    with ProgressBoard() as progress:
        yield partial(show_states, progress)


def show_states(progress: ProgressBoard, view: ExecutionView) -> None:
    """Show each state of an execution as a task, except states that take no time.

    A state that is entered again is another task, such as `Fetch a file (2)`.
    """
    times: Counter[str] = Counter()
    for state in view.states:
        if state.type not in _SHOWN_TYPES:
            continue
        times[state.name] += 1
        name = f"{state.name} ({times[state.name]})" if times[state.name] > 1 else state.name
        ended = TaskState.FAILED if state.failed else TaskState.DONE
        progress.update(name, TaskState.RUNNING if state.exited is None else ended, seconds=state.seconds)
