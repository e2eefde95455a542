"""A line that shows how far long work has come: on terminals and in notebooks, and nowhere else.

Drawn by tqdm (``lakeformat[progress]``), after two seconds of work. tqdm's variables in the environment are obeyed:
``TQDM_DISABLE=1`` switches it off, ``TQDM_DELAY=10`` waits for ten seconds. Where nobody looks, or without tqdm,
nothing is drawn and nothing is counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, Protocol

__all__ = ["BYTES", "FILES", "SILENT", "Progress", "looked_at", "progress"]

BYTES: Final = "B"
FILES: Final = " files"
#: Of ours; what the environment says of them counts.
_STYLE: Final = {"delay": 2, "leave": False}


class Progress(Protocol):
    """What work tells as it goes; from any thread."""

    def advance(self, done: int, *, rows: int = 0, files: int = 0, size_bytes: int = 0) -> None:
        """So much more of the total is done; the other counts stand beside it."""


class _Silent:
    def advance(self, done: int, *, rows: int = 0, files: int = 0, size_bytes: int = 0) -> None:
        """Nobody looks."""


SILENT: Final[Progress] = _Silent()


class _Drawn:
    def __init__(self, bar: Any) -> None:
        self._bar, self._lock = bar, Lock()
        self._counts = {"rows": 0, "files": 0, "bytes": 0}

    def advance(self, done: int, *, rows: int = 0, files: int = 0, size_bytes: int = 0) -> None:
        """See `Progress`."""
        with self._lock:
            for name, count in (("rows", rows), ("files", files), ("bytes", size_bytes)):
                self._counts[name] += count
            counts = [f"{self._counts[name]:,} {name}" for name in ("rows", "files") if self._counts[name]]
            written = [f"{self._counts['bytes'] / 1e6:,.1f} MB"] if self._counts["bytes"] else []
            self._bar.set_postfix_str(", ".join(counts + written), refresh=False)
            # What is planned in bytes may turn out to be a few more.
            self._bar.update(max(0, min(done, self._bar.total - self._bar.n)))


def looked_at() -> bool:
    """Whether somebody sees what is drawn: a terminal, or a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") or (sys.stderr is not None and sys.stderr.isatty())


@contextmanager
def progress(what: str, total: int, unit: str = BYTES) -> Iterator[Progress]:
    """A line for the time of the block: share done, rate, time left, and the counts that the work tells.

    Args:
        what: verb and object, such as ``compact``.
        total: of ``unit``; `BYTES` are shown with their prefixes.
    """
    bar = _bar(what, total, unit) if looked_at() else None
    if bar is None:
        yield SILENT
        return
    with bar:
        yield _Drawn(bar)


def _bar(what: str, total: int, unit: str) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    scale = {"unit_scale": True, "unit_divisor": 1024} if unit == BYTES else {}
    style = {name: value for name, value in _STYLE.items() if f"TQDM_{name.upper()}" not in os.environ}
    return tqdm(total=total, desc=what, unit=unit, **scale, **style)
