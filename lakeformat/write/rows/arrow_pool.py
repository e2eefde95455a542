"""The memory pool for the buffers of a write, and of a Spark task that reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

__all__ = ["reuse_memory"]


@dataclass
class _Pool:
    """The state of Arrow's default memory pool in this process.

    If several writes overlap, the first write sets the system's pool, and the last write restores the previous pool.
    """

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
def reuse_memory() -> Iterator[None]:
    """Let Arrow take memory from the system's allocator while the block runs.

    A write allocates and frees buffers of many megabytes all the time. Arrow's default pool returns freed buffers to
    the kernel, which fills the memory with zeros before its next use. Measurements show that this takes up to a third
    of a load's time. The system's allocator keeps freed buffers and reuses them.

    The blocks of several threads may overlap. When the last block ends, the pool from before the first block is
    restored.
    """
    _POOL.enter()
    try:
        yield
    finally:
        _POOL.leave()
