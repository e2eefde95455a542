"""Memory and bytes read of a process and its descendants, from ``/proc`` (Linux; zeros elsewhere)."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


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


def resident_bytes(root: int) -> int:
    """Resident memory of the whole tree; pages that forked processes share count once for each."""
    total = 0
    for process in descendants(root):
        if fields := _text(_PROC / str(process) / "statm").split():
            total += int(fields[1]) * _PAGE_BYTES
    return total


def bytes_read() -> int:
    """Bytes that this process and its living descendants got from read calls; mapped files are not seen."""
    total = 0
    for process in descendants(os.getpid()):
        for line in _text(_PROC / str(process) / "io").splitlines():
            if line.startswith("rchar:"):
                total += int(line.split()[1])
    return total


def _text(path: Path) -> str:
    """The file's text, or nothing: a process may end at any time."""
    try:
        return path.read_text()
    except OSError:
        return ""
