"""Measures the memory that a piece of code needs at most."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

# Pools must exist longer than their buffers, so they are never freed.
_POOLS: list[pa.MemoryPool] = []


@dataclass
class Peak:
    """Bytes that were in use at the same time; known when the `with` block has ended."""

    bytes: int = 0


@contextmanager
def arrow_peak() -> Iterator[Peak]:
    """Measure the memory of Arrow's buffers in a `with` block."""
    peak, default = Peak(), pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield peak
    finally:
        pa.set_memory_pool(default)
        peak.bytes = pool.max_memory()


@contextmanager
def python_peak() -> Iterator[Peak]:
    """Measure the memory of Python's objects in a `with` block."""
    peak = Peak()
    tracemalloc.start()
    try:
        yield peak
    finally:
        peak.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
