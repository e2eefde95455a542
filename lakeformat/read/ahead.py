"""Several iterators run at once by threads; their values come out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

__all__ = ["in_order"]

T = TypeVar("T")
_END: Final = object()


@dataclass(eq=False)
class _Stream(Generic[T]):
    """One iterator: values that are ready, and the step that makes the next. No two steps of it run at once."""

    values: Generator[T, None, None]
    size_of: Callable[[T], int]
    ready: deque[T] = field(default_factory=deque)
    sizes: deque[int] = field(default_factory=deque)
    step: Future[T | object] | None = None
    ended: bool = False

    def collect(self) -> None:
        """Take what the step has made, if it is done; raises what it raised."""
        if self.step is not None and self.step.done():
            value = self.step.result()
            self.step = None
            if value is _END:
                self.ended = True
            else:
                self.ready.append(value)  # type: ignore[arg-type]
                self.sizes.append(self.size_of(value))  # type: ignore[arg-type]

    def taken(self) -> T:
        """The next value that is ready."""
        self.sizes.popleft()
        return self.ready.popleft()


def in_order(
    streams: Iterable[Generator[T, None, None]],
    *,
    threads: int,
    held: int,
    held_bytes: int = 0,
    size_of: Callable[[T], int] = lambda _: 0,
    early: Generator[T, None, None] | None = None,
) -> Iterator[T]:
    """All values of the first stream, then all of the second, and so on.

    A step of a thread makes one value, so that none waits for whoever takes them: a caller that stops in the middle,
    or ends its process, leaves no thread behind. When it closes this iterator, the streams are closed.

    Memory: at most ``held`` values that nobody has asked for yet, or fewer that reach ``held_bytes``, and one in the
    making per thread; beside them what the early stream has made.

    Args:
        size_of: bytes of a value.
        early: one of the streams, whose first value takes long: it is begun before all others.

    Raises:
        Exception: what a stream raises, maybe before the values of those ahead of it.
    """
    coming = iter(streams)
    active: deque[_Stream[T]] = deque()
    begun = None if early is None else _Stream(early, size_of)
    try:
        with ThreadPoolExecutor(threads) as pool:
            if begun is not None:
                begun.step = pool.submit(next, begun.values, _END)
            while True:
                for stream in active:
                    stream.collect()
                running = sum(not stream.ended for stream in active)
                for values in islice(coming, threads - running):
                    active.append(begun if begun and values is begun.values else _Stream(values, size_of))
                if not active:
                    return
                head = active[0]
                _go_on(active, pool, held, held_bytes)
                if head.ready:
                    yield head.taken()
                elif head.ended:
                    active.popleft()
                else:
                    wait([stream.step for stream in active if stream.step], return_when=FIRST_COMPLETED)
    finally:
        for stream in (*active, *([begun] if begun else [])):
            stream.values.close()


def _go_on(active: deque[_Stream[T]], pool: ThreadPoolExecutor, held: int, held_bytes: int) -> None:
    """Begin a step of every stream that has none, as far as there is room for its value."""
    room = held - sum(len(stream.ready) + (stream.step is not None) for stream in active)
    if sum(sum(stream.sizes) for stream in active) > held_bytes:
        room = 0
    for stream in active:
        # The first may always go on: what is held behind it waits for its values.
        if not stream.ended and stream.step is None and (room > 0 or (stream is active[0] and not stream.ready)):
            stream.step = pool.submit(next, stream.values, _END)
            room -= 1
