"""Pipelines of every shape: generated ones, and large ones of one shape each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from hypothesis import strategies as st

from slackwater.pipeline.definition import Pipeline

Reads = list[list[int]]
"""For each step, the positions of the earlier steps that it reads. A step that reads none of them reads an input."""

LONGEST = 63
"""Characters of the longest name."""

SHAPES: dict[str, Callable[[int], Reads]] = {
    "chain": lambda size: [[n - 1] if n else [] for n in range(size)],
    # One diamond after the other: a step, two steps that read it, and a step that reads these two.
    "diamonds": lambda size: [[[n - 2, n - 1], [n - 1], [n - 2]][n % 3] if n else [] for n in range(size)],
    "fan-out": lambda size: [[0] if n else [] for n in range(size)],
    "separate": lambda size: [[] for n in range(size)],
    # A tree: the first half reads inputs, and each other step joins two earlier ones.
    "joins": lambda size: [[2 * m, 2 * m + 1] if (m := n - size // 2 - 1) >= 0 else [] for n in range(size)],
    "layers of 8": lambda size: [sorted({n - 8, n - n % 8 - 8 + (n + 1) % 8}) if n >= 8 else [] for n in range(size)],
}
"""By the name of a shape: what the steps of a pipeline of a given size read."""


def build(
    reads: Reads,
    *,
    exchanges: Collection[int],
    two_sinks: bool = False,
    name: str = "p",
    inputs: Sequence[str] = ("a", "b"),
    tables: dict[str, Any] | None = None,
    padding: int = 0,
) -> Pipeline:
    """Return the pipeline whose steps read `reads`; those in `exchanges` have `exchange: true`.

    Steps that nothing reads are read by one more step, which is published. With `two_sinks`, the first of several such
    steps is not read by it: it has `exchange: true`, and a load step writes it. `inputs` includes the names of
    `tables`. Names of steps have at least `padding` characters.
    """
    reads = list(reads)
    sinks = sorted(set(range(len(reads))) - {n for positions in reads for n in positions})
    exchanges = set(exchanges)
    loads = {}
    if two_sinks and len(sinks) > 1:
        sink = sinks.pop(0)
        exchanges.add(sink)
        loads = {"report": {"step": "write_csv", "depends_on": [_name(sink, padding)]}}
    if len(sinks) > 1:
        reads.append(sinks)
    published = len(reads) - 1 if len(sinks) > 1 else sinks[0]
    steps = {
        _name(n, padding): {
            "step": "sql",
            "depends_on": [_name(m, padding) for m in positions] or [inputs[n % len(inputs)]],
            "exchange": n in exchanges,
        }
        for n, positions in enumerate(reads)
    }
    definition = {
        "pipeline": name,
        "sources": [item for item in inputs if item not in (tables or {})],
        "tables": tables or {},
        "steps": steps,
        "publish": {"step": _name(published, padding), "key": ["date"]},
        "load": loads,
    }
    return Pipeline.model_validate(definition)


def _name(n: int, padding: int) -> str:
    return f"step_{n:03}_".ljust(padding, "y").rstrip("_")


@st.composite
def pipelines(
    draw: st.DrawFn, *, name: str = "p", inputs: Sequence[str] = ("a", "b"), tables: dict[str, Any] | None = None
) -> Pipeline:
    """Generate pipelines of all shapes, and of none, with any steps that end a stage."""
    size = draw(st.integers(1, 24))
    shape = draw(st.sampled_from([*SHAPES, "any"]))
    earlier = [st.lists(st.integers(0, n - 1), max_size=3, unique=True) if n else st.just([]) for n in range(size)]
    reads = draw(st.tuples(*earlier).map(list)) if shape == "any" else SHAPES[shape](size)
    return build(
        reads,
        exchanges=draw(st.sets(st.integers(0, size - 1))),
        two_sinks=draw(st.booleans()),
        name=name,
        inputs=inputs,
        tables=tables,
    )


@st.composite
def chains(draw: st.DrawFn) -> dict[str, Pipeline]:
    """Generate the pipelines of a project, in any order; each reads tables of others."""
    result: dict[str, Pipeline] = {}
    for n in range(draw(st.integers(2, 6))):
        upstream = draw(st.sets(st.sampled_from(sorted(result)))) if result else set()
        tables = {f"days_of_{other}": {"table": other, "days": [-6, 0]} for other in sorted(upstream)}
        result[f"p{n}"] = draw(pipelines(name=f"p{n}", inputs=("a", *tables), tables=tables))
    return dict(draw(st.permutations(list(result.items()))))
