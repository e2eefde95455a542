"""Locks on local files by ``flock``: the kernel frees them when their holder dies.

``flock`` belongs to an open file, which a forked child shares: it would stay locked until the child has ended, too.
So a child closes the files its parent had locked, and a lock is taken off before its file is closed, for children
that a library has forked without Python's knowledge.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from lakeformat.errors import LockTimeoutError

try:
    import fcntl
except ImportError:  # Not a POSIX system: these locks then exclude nobody.
    fcntl = None  # type: ignore[assignment]

__all__ = ["EXCLUDES", "held", "is_held"]

#: Whether the locks exclude anybody.
EXCLUDES: Final = fcntl is not None
_POLL_SECONDS: Final = 0.02
_OWNER_BYTES: Final = 512
#: Files that this process has open to lock them; guarded, so that no fork comes between opening and noting one.
_OPEN: Final[set[int]] = set()
_GUARD: Final = threading.RLock()


@contextmanager
def held(real: str, timeout_seconds: float, what: str, *, make: bool) -> Iterator[None]:
    """Hold a file's lock while the block runs.

    Args:
        what: the locked thing, for the message.
        make: make the file if it is not there, and write into it who holds the lock.

    Raises:
        FileNotFoundError: there is no such file, and it is not to be made.
        LockTimeoutError: another holds it.
    """
    process = os.getpid()
    with _GUARD:
        handle = os.open(real, os.O_RDWR | (os.O_CREAT if make else 0), 0o644)
        _OPEN.add(handle)
    try:
        _wait(handle, timeout_seconds, what)
        if make and EXCLUDES:
            _sign(handle)
        yield
    finally:
        if os.getpid() == process:  # In a child that leaves the block, the number may be another file's by now.
            _let_go(handle)


def is_held(real: str) -> bool:
    """Whether anybody holds the file's lock now, this process included; False for a file that is not there."""
    if fcntl is None:
        return False
    try:
        handle = os.open(real, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)


def _wait(handle: int, timeout_seconds: float, what: str) -> None:
    if fcntl is None:
        return
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"another writer held the lock of {what} for {timeout_seconds:g} s{_owner(handle)}; run the write "
                    "again, or raise hoodie.write.lock.wait_time_ms"
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return


def _sign(handle: int) -> None:
    with suppress(OSError):  # A full disk: the message of another's timeout then names nobody.
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _owner(handle: int) -> str:
    name = os.pread(handle, _OWNER_BYTES, 0).decode(errors="replace")
    return f" ({name})" if name else ""


def _let_go(handle: int) -> None:
    with _GUARD:
        _OPEN.discard(handle)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)


def _drop_in_child() -> None:
    for handle in _OPEN:
        with suppress(OSError):
            os.close(handle)
    _OPEN.clear()
    _GUARD.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_GUARD.acquire, after_in_parent=_GUARD.release, after_in_child=_drop_in_child)
