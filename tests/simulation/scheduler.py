"""A scheduler that runs threads one at a time, in an order that one seed decides.

Every thread of a simulated client waits at its gate until the scheduler opens it. A thread gives up its turn when it
calls the storage, the clock's sleep, or the end of its work. The next turn goes to the thread or event with the
smallest virtual time. So equal seeds give equal runs.
"""

from __future__ import annotations

import heapq
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Client", "Killed", "Scheduler", "SimulatedThreads"]


#: Instants, ids and other numbers of paths.
_NUMBERS: Final = re.compile(r"[0-9a-f-]{6,}|(?<=[_/.-])[0-9]+")


class Killed(BaseException):
    """The client of this thread was killed: the thread ends, and no call of it has an effect any more."""


@dataclass
class Client:
    """A process: its threads are stopped and killed together, and share a clock.

    Attributes:
        stopped_until: virtual time until which no thread of the client gets a turn.
        clock_ms: milliseconds by which the client's clock is ahead of the storage's clock.
        has_faults: whether its calls may fail, and whether it may be stopped or killed.
    """

    name: str
    stopped_until: float = 0.0
    clock_ms: int = 0
    is_dead: bool = False
    has_faults: bool = True


@dataclass
class _Task:
    """One thread of a client."""

    client: Client
    gate: threading.Lock = field(default_factory=threading.Lock)
    is_done: bool = False
    waiting: list[_Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.acquire()


class Scheduler:
    """Virtual time, and the threads and events that wait for it.

    Attributes:
        now: virtual time in seconds.
        random: the source of all random decisions of the run that are not recorded.
        decided: the random decisions of the run by name, without those that came out as usual. A name says who decides
            what, and how often before.
        unmet: names of the recorded decisions that were not asked for.
        errors: errors that threads have raised.

    Args:
        recorded: the decisions of another run, which are taken again; None to decide by the seed alone.
    """

    def __init__(self, seed: int, recorded: Mapping[str, Any] | None = None) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.decided: dict[str, Any] = {}
        self.unmet = set(recorded or ())
        self._recorded = recorded
        self._asked: Counter[str] = Counter()
        self._heap: list[tuple[float, int, _Task | Callable[[], None]]] = []
        self._count = 0
        self._current: _Task | None = None
        self._main = threading.Lock()
        self._main.acquire()
        self.errors: list[BaseException] = []

    def decide(self, name: str, draw: Callable[[random.Random], Any], usual: Any = None) -> Any:
        """Return a random decision: the recorded one of this name, or one drawn now.

        Numbers in the name are left out, because most are instants and ids. So the decisions of a request stay with it
        if other requests are added.

        Args:
            usual: the outcome that is not recorded, and the one of a decision that a record does not know.
        """
        name = _NUMBERS.sub("#", name)
        self._asked[name] += 1
        name = f"{name} {self._asked[name]}"
        if self._recorded is not None:
            self.unmet.discard(name)
            return self._recorded.get(name, usual)
        outcome = draw(self.random)
        if outcome is not None:
            self.decided[name] = outcome
        return outcome

    @property
    def client(self) -> Client:
        """Return the client whose thread has the turn."""
        assert self._current is not None
        return self._current.client

    def check_alive(self) -> None:
        """Raise `Killed` if the client whose thread has the turn was killed."""
        if self.client.is_dead:
            raise Killed

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Call a function at a virtual time. It must not give up the turn."""
        self._push(time, event)

    def spawn(self, client: Client, work: Callable[[], None], *, delay: float = 0.0) -> _Task:
        """Start a thread of a client. It gets its first turn after the delay."""
        task = _Task(client)

        def run() -> None:
            with task.gate:
                try:
                    self.check_alive()
                    work()
                except Killed:
                    pass
                except BaseException as error:
                    self.errors.append(error)
                task.is_done = True
                for other in task.waiting:
                    self._push(self.now, other)
                self._open(self._next())

        threading.Thread(target=run, daemon=True, name=client.name).start()
        self._push(self.now + delay, task)
        return task

    def join(self, task: _Task) -> None:
        """Wait until a thread has ended. A killed client does not wait."""
        if task.is_done or self.client.is_dead:
            return
        assert self._current is not None
        task.waiting.append(self._current)
        self._switch()
        self.check_alive()

    def pause(self, seconds: float) -> None:
        """Give up the turn for some virtual time, or longer if the client is stopped."""
        self.check_alive()
        current = self._current
        assert current is not None
        self._push(max(self.now + seconds, current.client.stopped_until), current)
        self._switch()
        while current.client.stopped_until > self.now and not current.client.is_dead:
            self._push(current.client.stopped_until, current)
            self._switch()
        self.check_alive()

    def run(self) -> None:
        """Run all threads and events until none is left. The errors of threads are added to `errors`."""
        self._open(self._next())
        self._main.acquire()

    def _push(self, time: float, what: _Task | Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (time, self._count, what))

    def _next(self) -> _Task | None:
        while self._heap:
            time, _, what = heapq.heappop(self._heap)
            self.now = max(self.now, time)
            if isinstance(what, _Task):
                return what
            what()
        return None

    def _open(self, task: _Task | None) -> None:
        self._current = task
        (self._main if task is None else task.gate).release()

    def _switch(self) -> None:
        current = self._current
        assert current is not None
        following = self._next()
        if following is current:
            return
        self._open(following)
        current.gate.acquire()


class _InCaller(Executor):
    """An executor that carries out each task at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class SimulatedThreads:
    """The backend of `lakeformat.concurrency` for simulated clients."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def thread_pool(self, threads: int) -> AbstractContextManager[Executor]:
        """Return a pool that runs each task in the caller's thread."""
        return _InCaller()

    @contextmanager
    def every(self, seconds: float, action: Callable[[], bool], name: str) -> Iterator[None]:
        """Run an action in a new thread of the client whenever the time has passed, until the block ends."""
        scheduler = self._scheduler
        client = scheduler.client
        is_over = False
        running: list[_Task] = []

        def work() -> None:
            if action() and not is_over:
                scheduler.at(scheduler.now + seconds, fire)

        def fire() -> None:
            if is_over or client.is_dead:
                return
            if client.stopped_until > scheduler.now:
                scheduler.at(client.stopped_until, fire)
                return
            running[:] = [scheduler.spawn(client, work)]

        scheduler.at(scheduler.now + seconds, fire)
        try:
            yield
        finally:
            is_over = True
            for task in running:
                scheduler.join(task)

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._scheduler.pause(seconds)

    def monotonic(self) -> float:
        """Return the virtual time."""
        return self._scheduler.now
