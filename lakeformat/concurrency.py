"""The port to threads and time: pools, periodic work, waiting, the steady clock, and repetition after conflicts.

All code that accesses storage starts its threads and waits only through this module. By default the functions use real
threads and the time of this machine. `use_backend` replaces them; the simulation in ``tests/simulation`` runs pools in
the caller's thread and lets virtual time pass, so that a run can be repeated exactly.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Condition, Event, Lock, Thread
from typing import Any, Final, Protocol, TypeVar

__all__ = [
    "Attempts",
    "Backend",
    "Patience",
    "every",
    "monotonic",
    "pause",
    "poll",
    "run_ahead",
    "run_all",
    "run_both",
    "sleep",
    "thread_pool",
    "tries",
    "use_backend",
]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Maximum wait in seconds before the first repetition. It doubles with each repetition, `_DOUBLINGS` times, or until
#: it is as long as the attempt was: where a commit takes seconds, a wait of milliseconds meets the same commit again.
_FIRST_WAIT: Final = 0.05
_DOUBLINGS: Final = 5
#: Maximum wait in seconds before any repetition.
_MOST_WAIT: Final = 10.0

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Other = TypeVar("_Other")


class Backend(Protocol):
    """An implementation of threads and time. The functions of this module describe the methods."""

    def thread_pool(self, threads: int) -> AbstractContextManager[Executor]:
        """Implement `thread_pool`."""

    def every(self, seconds: float, action: Callable[[], bool], name: str) -> AbstractContextManager[None]:
        """Implement `every`."""

    def sleep(self, seconds: float) -> None:
        """Implement `sleep`."""

    def monotonic(self) -> float:
        """Implement `monotonic`."""


def _read_steady_clock() -> float:
    """Return the time of the clock that goes on while the machine sleeps, because leases end meanwhile."""
    if hasattr(time, "CLOCK_BOOTTIME"):  # Linux. The clock of other systems may stand still.
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


#: Maximum number of threads in pools that wait for their next block. Pools above it end with their block.
_MOST_KEPT_THREADS: Final = 64


class _KeptPools:
    """The pools of this process that no block uses.

    A pool serves one block at a time, so a task that opens a pool waits for no task of its own pool. A process that was
    forked has none of the threads of its parent, and begins without pools.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._idle: dict[int, list[ThreadPoolExecutor]] = {}
        self._threads = 0

    def take(self, threads: int) -> ThreadPoolExecutor:
        """Return a pool of this many threads that no block uses."""
        with self._guard:
            if idle := self._idle.get(threads):
                self._threads -= threads
                return idle.pop()
        return ThreadPoolExecutor(threads, thread_name_prefix="lakeformat")

    def give_back(self, pool: ThreadPoolExecutor, threads: int) -> None:
        """Keep a pool whose tasks have ended for other blocks. Above `_MOST_KEPT_THREADS` end its threads."""
        with self._guard:
            if self._threads + threads <= _MOST_KEPT_THREADS:
                self._threads += threads
                self._idle.setdefault(threads, []).append(pool)
                return
        pool.shutdown(wait=False)


class _BlockPool(Executor):
    """The pool of one block. It takes threads for the first task, and gives them back at the end of the block."""

    def __init__(self, threads: int) -> None:
        self._threads, self._kept = threads, _kept_pools
        self._guard = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pending: set[Future[Any]] = set()
        self._is_over = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with self._guard:
            if self._is_over:
                raise RuntimeError("the block of this pool is over")
            if self._pool is None:
                self._pool = self._kept.take(self._threads)
            future = self._pool.submit(fn, *args, **kwargs)
            self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **options: Any) -> Iterator[Any]:
        """Implement ``Executor.map``. The caller's thread carries out a single task."""
        calls = list(zip(*iterables, strict=False))
        if len(calls) > 1:
            return super().map(fn, *zip(*calls, strict=True), **options)
        return iter([fn(*arguments) for arguments in calls])

    def __exit__(self, *error: object) -> None:
        with self._guard:
            self._is_over, pool, self._pool = True, self._pool, None
        if pool is not None:
            wait([*self._pending])
            self._kept.give_back(pool, self._threads)


class _Alarm:
    """One thread that begins periodic actions when the first time of each has come. It ends when there is none."""

    def __init__(self) -> None:
        self._changed = Condition(Lock())
        self._due: dict[_Periodic, float] = {}
        self._wakes_at: float | None = None

    def add(self, periodic: _Periodic) -> None:
        """Begin the action after its seconds, unless `remove` comes before."""
        due = time.monotonic() + periodic.seconds
        with self._changed:
            self._due[periodic] = due
            if self._wakes_at is None:
                self._wakes_at = due
                Thread(target=self._run, name="lakeformat-alarm", daemon=True).start()
            elif due < self._wakes_at:
                self._changed.notify()

    def remove(self, periodic: _Periodic) -> None:
        """Forget the action. It does not begin after this."""
        with self._changed:
            self._due.pop(periodic, None)

    def _run(self) -> None:
        with self._changed:
            try:
                while self._due:
                    now = time.monotonic()
                    for periodic in [periodic_job for periodic_job, due in self._due.items() if due <= now]:
                        del self._due[periodic]
                        periodic.begin()
                    self._wakes_at = min(self._due.values(), default=now)
                    self._changed.wait(self._wakes_at - now)
            finally:
                self._wakes_at = None


class _Periodic:
    """An action that is called again and again. Its thread starts when the first call is due."""

    def __init__(self, seconds: float, action: Callable[[], bool], name: str) -> None:
        self.seconds, self._action = seconds, action
        self._stopped = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._has_begun = False

    def begin(self) -> None:
        """Start the calls, the first at once."""
        self._has_begun = True
        self._thread.start()

    def stop(self) -> None:
        """Make no further call, and wait for the one that runs."""
        self._stopped.set()
        if self._has_begun:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set() and self._action():
            self._stopped.wait(self.seconds)


_kept_pools = _KeptPools()
_alarm = _Alarm()


def _begin_without_threads() -> None:
    """Forget all threads: a forked process has none of them."""
    global _kept_pools, _alarm
    _kept_pools, _alarm = _KeptPools(), _Alarm()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_without_threads)


class _RealThreads:
    """Threads and time of this machine."""

    def thread_pool(self, threads: int) -> AbstractContextManager[Executor]:
        return _BlockPool(threads)

    @contextmanager
    def every(self, seconds: float, action: Callable[[], bool], name: str) -> Iterator[None]:
        alarm, periodic = _alarm, _Periodic(seconds, action, name)
        alarm.add(periodic)
        try:
            yield
        finally:
            alarm.remove(periodic)
            periodic.stop()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def monotonic(self) -> float:
        return _read_steady_clock()


_backend: Backend = _RealThreads()


def thread_pool(threads: int) -> AbstractContextManager[Executor]:
    """Open a pool of at most this many threads. The end of the block waits for all tasks.

    Its threads live on for other blocks of this process. The caller's thread carries out a `map` of one item.
    """
    return _backend.thread_pool(threads)


def run_all(function: Callable[[_Item], _Result], items: Iterable[_Item], *, threads: int) -> list[_Result]:
    """Call the function on all items, several at once, and return the results in the order of the items.

    One item, or one thread, needs no pool.

    Raises:
        Exception: the error of the first item, in this order, whose call failed.
    """
    items = list(items)
    if min(len(items), threads) < 2:
        return [function(item) for item in items]
    with thread_pool(threads) as pool:
        return list(pool.map(function, items))


def run_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield the items unchanged. A second thread makes the next item while the caller uses the current one."""
    nothing = object()
    with thread_pool(1) as maker:
        following = maker.submit(next, items, nothing)
        while (item := following.result()) is not nothing:
            following = maker.submit(next, items, nothing)
            yield item  # type: ignore[misc]


def run_both(
    first: Callable[[], _Result], second: Callable[[], _Other], *, at_once: bool = True
) -> tuple[_Result, _Other]:
    """Call two functions and return both results. Neither may need what the other one does.

    Args:
        at_once: False to call the second function after the first one.

    Raises:
        Exception: the error of the first function, or else of the second.
    """
    if not at_once:
        return first(), second()
    with thread_pool(1) as pool:
        running = pool.submit(first)
        try:
            other = second()
        finally:
            result = running.result()
        return result, other


def every(seconds: float, action: Callable[[], bool], *, name: str) -> AbstractContextManager[None]:
    """Call an action again and again in a thread of its own while the block runs. The end of the block waits for it.

    Args:
        seconds: time before each call.
        action: returns False if it must not be called again. It must not raise.
        name: name of the thread.
    """
    return _backend.every(seconds, action, name)


def sleep(seconds: float) -> None:
    """Wait."""
    _backend.sleep(seconds)


def monotonic() -> float:
    """Return a time in seconds that never goes back, and goes on while the machine sleeps."""
    return _backend.monotonic()


def pause(longest: float, token: str, *, least: float = 0.0) -> None:
    """Wait for a random time, so that processes that have met do not meet again.

    Args:
        longest: most seconds to wait.
        token: random hexadecimal digits, eight or more, which decide the time.
        least: fewest seconds to wait.
    """
    sleep(least + (longest - least) * int(token[:8], 16) / (1 << 32))


def tries(pauses: Sequence[float]) -> Iterator[bool]:
    """Yield before each try of an action whether it is the last one, and wait between two tries.

    Args:
        pauses: seconds before the second try and each further one.
    """
    for seconds in pauses:
        yield False
        sleep(seconds)
    yield True


def poll(is_done: Callable[[], bool], seconds: float, wait_a_moment: Callable[[], None]) -> bool:
    """Call a function until it returns True. Return False if that takes longer than ``seconds``.

    Args:
        wait_a_moment: called between two calls.
    """
    ends = monotonic() + seconds
    while not is_done():
        if monotonic() >= ends:
            return False
        wait_a_moment()
    return True


@contextmanager
def use_backend(backend: Backend) -> Iterator[None]:
    """Use another implementation in all threads of this process while the block runs. It is meant for tests."""
    global _backend  # noqa: PLW0603
    before, _backend = _backend, backend
    try:
        yield
    finally:
        _backend = before


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an action is repeated after conflicts with other processes.

    Attributes:
        seconds: time after the begin of the first attempt. After it, no other attempt begins.
        repetitions: maximum number of repetitions; None if the time alone counts.
    """

    seconds: float
    repetitions: int | None = None

    @property
    def few(self) -> int:
        """Return the number of repetitions if another process makes no progress; each waits longer than the last."""
        return _DOUBLINGS if self.repetitions is None else min(self.repetitions, _DOUBLINGS)


class Attempts:
    """The attempts of one action. `wait` comes between two of them.

    Attributes:
        patience: when the last attempt may begin.
        repetitions: number of repetitions so far.
    """

    def __init__(self, patience: Patience, token: Callable[[], str], *, level: int = logging.WARNING) -> None:
        self.patience, self.repetitions = patience, 0
        self._token, self._level = token, level
        self._first = self._begun = monotonic()

    @property
    def is_late(self) -> bool:
        """Tell whether so many attempts have failed that the next one should keep other processes away, if it can."""
        patience = self.patience
        return self.repetitions > 0 and self.repetitions >= (patience.repetitions or _DOUBLINGS)

    def wait(self, error: Exception, *, is_stuck: bool = False) -> bool:
        """Log the conflict, and wait for a random time. Return False, without a wait, if no attempt is left.

        Args:
            error: the conflict that ended the attempt.
            is_stuck: whether it comes again until another process ends what it has begun. Then few attempts are made.
        """
        now, patience = monotonic(), self.patience
        most = patience.few if is_stuck else patience.repetitions
        if (most is not None and self.repetitions >= most) or now - self._first >= patience.seconds:
            return False
        _LOG.log(self._level, "%s; trying again, for %.0f seconds", error, patience.seconds - (now - self._first))
        grown = _FIRST_WAIT * 2 ** min(self.repetitions, 30)
        longest = min(grown, _MOST_WAIT, max(_FIRST_WAIT * 2**_DOUBLINGS, now - self._begun))
        pause(longest, self._token())
        self.repetitions += 1
        self._begun = monotonic()
        return True
