"""Memory, processor time and bytes read of a process and its descendants, from ``/proc`` (Linux; zeros elsewhere)."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> list[int]:
    """Return ``root`` and all processes below it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in _PROC.glob("[0-9]*"):
        if fields := _text(entry / "stat").rpartition(")")[2].split():
            children[int(fields[1])].append(int(entry.name))
    found, open_ = [], [root]
    while open_:
        found.append(open_.pop())
        open_ += children[found[-1]]
    return found


class TreeMemory:
    """Resident memory of a process tree, sampled repeatedly.

    A process counts from the second sample that sees it: between fork and exec, a JVM that starts a program shows all
    its memory twice.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: frozenset[int] = frozenset({root})

    def sample_bytes(self) -> int:
        """Return the memory now. Pages that several lasting processes share count once for each process."""
        present = frozenset(descendants(self._root))
        lasting, self._seen = present & self._seen, present
        fields = (_text(_PROC / str(process) / "statm").split() for process in lasting)
        return sum(int(field[1]) * _PAGE_BYTES for field in fields if field)


def resident_bytes() -> int:
    """Return the resident memory of this process and its living descendants."""
    fields = (_text(_PROC / str(process) / "statm").split() for process in descendants(os.getpid()))
    return sum(int(field[1]) * _PAGE_BYTES for field in fields if field)


def bytes_read() -> int:
    """Return the bytes that this process and its living descendants read by calls; see `worker.unmapped_call`."""
    total = 0
    for process in descendants(os.getpid()):
        for line in _text(_PROC / str(process) / "io").splitlines():
            if line.startswith("rchar:"):
                total += int(line.split()[1])
    return total


def cpu_seconds() -> float:
    """Return the processor time of this process, its living descendants and the ended ones that they waited for."""
    total = 0
    for process in descendants(os.getpid()):
        if fields := _text(_PROC / str(process) / "stat").rpartition(")")[2].split():
            total += sum(map(int, fields[11:15]))
    return total / _TICKS_PER_SECOND


def reset_peak() -> None:
    """Reset the peak that `peak_bytes` returns. If the system forbids it, the peak of the whole process remains."""
    with suppress(OSError):
        (_PROC / "self" / "clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the largest resident memory of this process since `reset_peak`.

    ``ru_maxrss`` would begin with the peak of the parent process.
    """
    for line in _text(_PROC / "self" / "status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def available_bytes() -> int:
    """Return the memory that is available without swapping."""
    for line in _text(_PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: Path) -> str:
    """Return the text of the file, or "" if the process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
