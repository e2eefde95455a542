"""The port to threads and time: pools, periodic work, sleeping, and the steady clock.

All code that accesses storage starts its threads and waits only through this module. By default the functions use real
threads and the time of this machine. `use_backend` replaces them; the simulation in ``tests/simulation`` runs pools in
the caller's thread and lets virtual time pass, so that a run can be repeated exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread
from typing import Protocol, TypeVar

__all__ = ["Backend", "every", "monotonic", "run_ahead", "run_all", "run_both", "sleep", "thread_pool", "use_backend"]

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


class _RealThreads:
    """Threads and time of this machine."""

    def thread_pool(self, threads: int) -> AbstractContextManager[Executor]:
        return ThreadPoolExecutor(threads)

    @contextmanager
    def every(self, seconds: float, action: Callable[[], bool], name: str) -> Iterator[None]:
        stopped = Event()

        def run() -> None:
            while not stopped.wait(seconds):
                if not action():
                    return

        thread = Thread(target=run, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def monotonic(self) -> float:
        return _read_steady_clock()


_backend: Backend = _RealThreads()


def thread_pool(threads: int) -> AbstractContextManager[Executor]:
    """Open a pool of at most this many threads. The end of the block waits for all tasks."""
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
            found = second()
        finally:
            result = running.result()
        return result, found


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


@contextmanager
def use_backend(backend: Backend) -> Iterator[None]:
    """Use another implementation in all threads of this process while the block runs. It is meant for tests."""
    global _backend  # noqa: PLW0603
    before, _backend = _backend, backend
    try:
        yield
    finally:
        _backend = before
