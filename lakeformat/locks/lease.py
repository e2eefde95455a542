"""The steady clock of leases, the error of a lost lease, and the loop that waits for a lock."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from lakeformat.concurrency import monotonic, pause, poll
from lakeformat.errors import LockLostError, LockTimeoutError

__all__ = ["TimedLease", "make_lost_error", "make_timeout_error", "wait_for_lock"]

#: Mean number of seconds between two tries to take a lock. Who tries more often starves Hudi's writers.
_POLL_SECONDS = 1.0
#: The source of random waits. The simulation seeds it.
_RANDOM = random.Random()  # noqa: S311  Waits need no secure random numbers.


class TimedLease:
    """A lease that ends at a time of the steady clock. A thread renews it; threads can share it.

    Args:
        name: name of the lock, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._until = 0.0
        self._length = 0.0
        self._guard = threading.Lock()

    def extend(self, began: float, seconds: float) -> None:
        """Let the lease end this many seconds after ``began``, the time before the request that granted it."""
        with self._guard:
            self._until, self._length = began + seconds, seconds

    def end(self) -> None:
        """End the lease: another holder has the lock."""
        with self._guard:
            self._until = 0.0

    def remaining(self) -> float:
        """Return the seconds until the lease ends; 0 if it has ended."""
        with self._guard:
            return max(0.0, self._until - monotonic())

    def check(self, seconds: float) -> None:
        """Raise `LockLostError` if less than ``seconds``, or less than half of a shorter lease, is left."""
        if self.remaining() < min(seconds, self._length / 2):
            raise make_lost_error(self._name)


def make_lost_error(name: str) -> LockLostError:
    """Return the error of a lock whose lease has ended."""
    return LockLostError(
        f"the lease of {name} has ended or was not renewed in time, so another writer may hold it; run the write again"
    )


def make_timeout_error(held: str, seconds: float) -> LockTimeoutError:
    """Return the error of a lock that was not free in time.

    Args:
        held: name of the lock and its holder.
    """
    return LockTimeoutError(
        f"another writer has kept {held}; waited {seconds:g} s. Run the write again when that writer has ended, or "
        "raise hoodie.write.lock.wait_time_ms"
    )


def wait_for_lock(
    take: Callable[[], bool],
    timeout_seconds: float,
    describe: Callable[[], str],
    *,
    poll_seconds: float = _POLL_SECONDS,
) -> None:
    """Try to take a lock until it succeeds.

    Args:
        take: tries once; returns whether the lock is taken.
        timeout_seconds: maximum time to wait.
        describe: returns the name of the lock and its holder, for the message, such as ``lock x of owner y``.

    Raises:
        LockTimeoutError: the lock was not taken in time.
    """

    def wait_a_moment() -> None:
        pause(1.5 * poll_seconds, f"{_RANDOM.getrandbits(32):08x}", least=0.5 * poll_seconds)

    if not poll(take, timeout_seconds, wait_a_moment):
        raise make_timeout_error(describe(), timeout_seconds)
