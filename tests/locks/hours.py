"""The time and the background work of the tests of locks: nothing happens until a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Job:
    """Background work that is done again and again."""

    def __init__(self, period: float, action: Callable[[], bool], now: float) -> None:
        self.period, self.action, self.due = period, action, now + period


class Hours:
    """A clock that a test moves. Background work runs when time passes.

    Attributes:
        now: the time in seconds.
        work: the background work of all holders. Without it they are as good as stopped.
    """

    def __init__(self) -> None:
        self.now, self.work = 1_000.0, list[Job]()

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def seconds(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pass_seconds(seconds)

    def thread_pool(self, threads: int) -> None:
        raise AssertionError("a lock needs no pool")

    @contextmanager
    def every(self, seconds: float, action: Callable[[], bool], name: str) -> Iterator[None]:
        job = Job(seconds, action, self.now)
        self.work.append(job)
        try:
            yield
        finally:
            self.work = [each for each in self.work if each is not job]

    def pass_seconds(self, seconds: float, *, works: bool = True) -> None:
        """Let time pass, with the background work that is due, or without it as if the process were stopped."""
        end = self.now + seconds
        while works and (due := [job for job in self.work if job.due <= end]):
            job = min(due, key=lambda each: each.due)
            self.now = max(self.now, job.due)
            job.due = self.now + job.period
            if not job.action():
                self.work = [each for each in self.work if each is not job]
        self.now = end
