"""The steady clock of leases, the error of a lost lease, and the loop that waits for a lock."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable

from lakeformat.concurrency import monotonic, sleep
from lakeformat.errors import LockLostError, LockTimeoutError

__all__ = ["TimedLease", "wait_for_lock"]

#: Mean number of seconds between two tries to take a lock. Who tries more often starves Hudi's writers.
_POLL_SECONDS = 1.0
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

    def extend_forever(self) -> None:
        """Let the lease last until `end` is called: the lock service tells when the lock is lost."""
        self.extend(0.0, math.inf)

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
            raise LockLostError(
                f"the lease of {self._name} has ended or was not renewed in time, so another writer may hold it; run "
                "the write again"
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
        describe: returns the name of the lock and its holder, for the message.

    Raises:
        LockTimeoutError: the lock was not taken in time.
    """
    deadline = monotonic() + timeout_seconds
    while not take():
        if monotonic() >= deadline:
            raise LockTimeoutError(
                f"another writer held {describe()} for {timeout_seconds:g} s; run the write again, or raise "
                "hoodie.write.lock.wait_time_ms"
            )
        sleep(poll_seconds * _RANDOM.uniform(0.5, 1.5))
