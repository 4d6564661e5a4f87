"""How many events an execution adds to its history, computed from the definition of its state machine."""

from __future__ import annotations

from slackwater.pipeline.retries import Machine

HISTORY_LIMIT = 25_000
"""Events of an execution, after which Step Functions fails it."""


def state_events(state: Machine, *, items: int = 0) -> int:
    """Return the most events that one pass through a state adds: all of its retries, and its end.

    `items` is the number of items of a `Map` state.
    """
    if state["Type"] in {"Succeed", "Fail"}:
        return 2  # entered; the end of the execution
    if state["Type"] == "Map":
        # Entered, started, succeeded, left; each iteration is started and ends.
        return 4 + items * (2 + most_events(state["ItemProcessor"]))
    if state["Type"] != "Task":
        return 2
    # Each attempt is scheduled, started and ends. A nested execution or a job is also submitted: an execution once,
    # because only its start is retried, and a job in each attempt.
    attempts = 1 + sum(retrier["MaxAttempts"] for retrier in state["Retry"])
    submitted = attempts if "startJobRun" in state["Resource"] else 1
    return 2 + 3 * attempts + (submitted if ".sync" in state["Resource"] else 0)


def most_events(machine: Machine, *, items: int = 0) -> int:
    """Return the most events of a path through a machine without loops, without the start of the execution."""
    states = machine["States"]

    def from_state(name: str) -> int:
        state = states[name]
        branches = [*state.get("Choices", []), *state.get("Catch", [])]
        following = {branch["Next"] for branch in branches} | {state.get("Next"), state.get("Default")} - {None}
        return state_events(state, items=items) + max((from_state(name) for name in following), default=0)

    return from_state(machine["StartAt"])
