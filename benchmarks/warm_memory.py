"""``python -m benchmarks.warm_memory BYTES``: touch memory once and free it.

On a virtual machine the first touch of a page that the guest never used causes a fault in the host as well, some
seconds a gigabyte, and the first process that touches it pays this cost. Therefore, before each measured process, a
process of this module touches and frees half of the available memory, at most `LIMIT_BYTES`, so that all engines find
the machine in the same state. A separate process leaves no trace in the memory of the runner or of its children.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.process_tree import available_bytes

LIMIT_BYTES: Final = 8 << 30


def touch(size_bytes: int) -> None:
    """Write one byte to every page of ``size_bytes`` of memory, and free the memory."""
    if size_bytes:
        with mmap.mmap(-1, size_bytes) as memory:
            view = np.frombuffer(memory, np.uint8)
            view[:: mmap.PAGESIZE] = 1
            del view


def warm(limit_bytes: int = LIMIT_BYTES) -> None:
    """Run `touch` on half of the available memory, at most the limit, in a process of its own."""
    size_bytes = min(available_bytes() // 2, limit_bytes)
    command = [sys.executable, "-m", "benchmarks.warm_memory", str(size_bytes)]
    subprocess.run(command, cwd=Path(__file__).resolve().parents[1], check=True)


if __name__ == "__main__":
    touch(int(sys.argv[1]))
