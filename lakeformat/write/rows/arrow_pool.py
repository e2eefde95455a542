"""Where the buffers of a write come from, and those of a Spark task that reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

__all__ = ["reused_memory"]


@dataclass
class _Pool:
    """The process has one default pool, and may have several writes: the first sets it, the last restores it."""

    users: int = 0
    before: pa.MemoryPool | None = None
    guard: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> None:
        with self.guard:
            if not self.users:
                self.before = pa.default_memory_pool()
                pa.set_memory_pool(pa.system_memory_pool())
            self.users += 1

    def leave(self) -> None:
        with self.guard:
            self.users -= 1
            if not self.users:
                pa.set_memory_pool(self.before)


_POOL: Final = _Pool()


@contextmanager
def reused_memory() -> Iterator[None]:
    """Let Arrow take memory from the system's allocator while the block runs.

    A write takes and drops buffers of many megabytes all the time. Arrow's default pool hands each back to the
    kernel, which clears it for the next: up to a third of the time of a load, measured. The system's allocator
    keeps them. Blocks may overlap, in threads; after the last one the pool of the process is as before the first.
    """
    _POOL.enter()
    try:
        yield
    finally:
        _POOL.leave()
