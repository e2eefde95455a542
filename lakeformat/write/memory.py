"""Where a write's buffers come from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

__all__ = ["reused_memory"]


@contextmanager
def reused_memory() -> Iterator[None]:
    """Let Arrow take memory from the system's allocator while the block runs.

    A write takes and drops buffers of many megabytes all the time. Arrow's default pool hands each back to the
    kernel, which clears it for the next: up to a third of the time of a load, measured. The system's allocator
    keeps them. The pool of the process is as before after the block.
    """
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
