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
    """``root`` and all processes below it."""
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
    """Resident memory of a tree, sampled again and again.

    A process counts from the second sample that sees it: a JVM that starts a program shows all its memory
    twice for the instant between fork and exec.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: frozenset[int] = frozenset({root})

    def sample_bytes(self) -> int:
        """Memory now; pages that lasting processes share count once for each."""
        present = frozenset(descendants(self._root))
        lasting, self._seen = present & self._seen, present
        fields = (_text(_PROC / str(process) / "statm").split() for process in lasting)
        return sum(int(field[1]) * _PAGE_BYTES for field in fields if field)


def resident_bytes() -> int:
    """Resident memory of this process and its living descendants."""
    fields = (_text(_PROC / str(process) / "statm").split() for process in descendants(os.getpid()))
    return sum(int(field[1]) * _PAGE_BYTES for field in fields if field)


def bytes_read() -> int:
    """Bytes that this process and its living descendants got from read calls; see `mapped_away` of the worker."""
    total = 0
    for process in descendants(os.getpid()):
        for line in _text(_PROC / str(process) / "io").splitlines():
            if line.startswith("rchar:"):
                total += int(line.split()[1])
    return total


def cpu_seconds() -> float:
    """Processor time of this process and its living descendants, with that of the ended ones they waited for."""
    total = 0
    for process in descendants(os.getpid()):
        if fields := _text(_PROC / str(process) / "stat").rpartition(")")[2].split():
            total += sum(map(int, fields[11:15]))
    return total / _TICKS_PER_SECOND


def reset_peak() -> None:
    """Let `peak_bytes` of this process start anew; where the system forbids it, the peak stays the process's."""
    with suppress(OSError):
        (_PROC / "self" / "clear_refs").write_text("5")


def peak_bytes() -> int:
    """Largest resident memory of this process since `reset_peak`.

    Not ``ru_maxrss``: that one begins with the peak of the process which started this one.
    """
    for line in _text(_PROC / "self" / "status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def available_bytes() -> int:
    """Memory that could be had without swapping."""
    for line in _text(_PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: Path) -> str:
    """The file's text, or nothing: a process may end at any time."""
    try:
        return path.read_text()
    except OSError:
        return ""
