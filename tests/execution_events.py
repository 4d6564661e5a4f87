"""How many events an execution adds to its history, computed from the definition of its state machine."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

from slackwater.pipeline.retries import Machine
from tests.machines import evaluated

HISTORY_LIMIT = 25_000
"""Events of an execution, after which Step Functions fails it."""
ENDS = 2
"""Events of an execution besides those of its states: its start and its end."""


def state_events(state: Machine, *, items: int = 0) -> int:
    """Return the most events that one pass through a state adds, with all of its retries.

    `items` is the number of items of a `Map` state.
    """
    if state["Type"] == "Fail":
        return 1  # entered
    if state["Type"] == "Map":
        # Entered, started, succeeded, left; each iteration is started and ends.
        return 4 + items * (2 + most_events(state["ItemProcessor"]))
    if state["Type"] == "Parallel":
        # Entered, started, succeeded, left; a branch has no events of its own.
        return 4 + sum(map(most_events, state["Branches"]))
    if state["Type"] != "Task":
        return 2  # entered, left
    # Each attempt is scheduled, started and ends. A nested execution or a job is also submitted: an execution once,
    # because only its start is retried, and a job in each attempt.
    attempts = 1 + sum(retrier["MaxAttempts"] for retrier in state["Retry"])
    submitted = attempts if "startJobRun" in state["Resource"] else 1
    return 2 + 3 * attempts + (submitted if ".sync" in state["Resource"] else 0)


def most_events(machine: Machine, *, items: int = 0) -> int:
    """Return the most events of a path through a machine that does not come back to its first state.

    The start and the end of the execution are not among them. Raises `graphlib.CycleError` for any other loop.
    """
    states = machine["States"]
    following = {name: targets(state) - {machine["StartAt"]} for name, state in states.items()}
    most: dict[str, int] = {}
    # Each state comes after those that follow it: from the ends of the machine to its start.
    for name in TopologicalSorter(following).static_order():
        most[name] = state_events(states[name], items=items) + max(
            (most[after] for after in following[name]), default=0
        )
    return most[machine["StartAt"]]


def targets(state: Machine) -> set[str]:
    """Return the names of all states that may follow a state."""
    branches = [*state.get("Choices", []), *state.get("Catch", [])]
    return {branch["Next"] for branch in branches} | {state[key] for key in ("Next", "Default") if key in state}


class Waiting:
    """An execution of a pipeline's machine whose day is run by other executions until it gives up."""

    def __init__(self, machine: Machine) -> None:
        self.waits: list[int] = []
        """Seconds."""
        self.events = 0
        execution = {"Input": {"date": "2013-03-08"}, "Id": "e", "Name": "n"}
        context = {"Execution": execution, "StateMachine": {"Name": "m"}}
        result = {"Payload": {"action": "wait", "run": None, "publication": None}}
        entered: Any = execution["Input"]
        variables: dict[str, Any] = {}
        state = machine["States"][machine["StartAt"]]
        while state["Type"] != "Fail":
            self.events += state_events(state)
            assert self.events < HISTORY_LIMIT
            states = {"input": entered, "context": context, "result": result}
            if state["Type"] == "Wait":
                self.waits.append(evaluated(state["Seconds"], states, variables))
            choices = state.get("Choices", [])
            following = [choice for choice in choices if evaluated(choice["Condition"], states, variables)]
            assigned = evaluated(state.get("Assign", {}), states, variables)
            entered = evaluated(state.get("Output", entered), states, variables)
            variables |= assigned
            state = machine["States"][following[0]["Next"] if following else state["Next"]]
        self.error = state["Error"]
        self.cause = evaluated(state["Cause"], {"input": entered, "context": context}, variables)
