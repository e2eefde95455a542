"""Iterators that threads work on keep the order of values, hold few of them and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.read.run.parallel import read_in_order


class Counted:
    """Streams of numbers, with the count of numbers made and of open streams."""

    def __init__(self) -> None:
        self.made = self.opened = self.closed = 0
        self._guard = threading.Lock()

    def stream(self, values: range) -> Generator[int, None, None]:
        with self._guard:
            self.opened += 1
        try:
            for value in values:
                with self._guard:
                    self.made += 1
                yield value
        finally:
            with self._guard:
                self.closed += 1


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 5), st.integers(1, 9))
def test_values_are_in_order_with_any_number_of_threads(lengths: list[int], threads: int, held: int) -> None:
    counted = Counted()
    streams = (counted.stream(range(at * 100, at * 100 + length)) for at, length in enumerate(lengths))
    wanted = [at * 100 + value for at, length in enumerate(lengths) for value in range(length)]
    assert list(read_in_order(streams, threads=threads, held=held)) == wanted
    assert counted.opened == counted.closed == len(lengths)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 9), st.data())
def test_early_stream_keeps_its_place(lengths: list[int], threads: int, held: int, data: st.DataObject) -> None:
    counted, at = Counted(), data.draw(st.integers(0, len(lengths) - 1))
    streams = [counted.stream(range(100 * at, 100 * at + length)) for at, length in enumerate(lengths)]
    wanted = [100 * at + value for at, length in enumerate(lengths) for value in range(length)]
    values = read_in_order(iter(streams), threads=threads, held=held, early=streams[at])
    stopped = data.draw(st.integers(0, len(wanted)))
    assert [next(values) for _ in range(stopped)] == wanted[:stopped]
    if data.draw(st.booleans()):
        assert list(values) == wanted[stopped:]
    values.close()  # type: ignore[attr-defined]
    assert counted.opened == counted.closed


def test_early_stream_is_started_first() -> None:
    begun = threading.Event()

    def stream(at: int) -> Generator[int, None, None]:
        if at == 5:
            begun.set()
        elif not begun.wait(60):
            raise TimeoutError("the last stream has not begun")
        yield at

    streams = [stream(at) for at in range(6)]
    assert list(read_in_order(iter(streams), threads=2, held=2, early=streams[5])) == [0, 1, 2, 3, 4, 5]


@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 9))
def test_values_ahead_stay_within_the_limit(taken: int, threads: int, held: int) -> None:
    counted = Counted()
    values = read_in_order((counted.stream(range(20)) for _ in range(9)), threads=threads, held=held)
    for _ in range(taken):
        next(values)
    # The first stream may make one value more than there is room for.
    assert counted.made <= taken + held + 1
    assert counted.opened - counted.closed <= threads + held
    values.close()  # type: ignore[attr-defined]
    assert counted.opened == counted.closed
    assert counted.made <= taken + held + 1


def test_streams_run_concurrently() -> None:
    meeting = threading.Barrier(3, timeout=60)

    def stream(at: int) -> Generator[int, None, None]:
        meeting.wait()
        yield at

    assert list(read_in_order(map(stream, range(6)), threads=3, held=3)) == [0, 1, 2, 3, 4, 5]


def test_error_in_a_stream_closes_the_others() -> None:
    counted = Counted()

    def broken() -> Generator[int, None, None]:
        yield 1
        raise OSError("disk gone")

    streams = (broken() if at == 2 else counted.stream(range(5)) for at in range(8))
    with pytest.raises(OSError, match="disk gone"):
        list(read_in_order(streams, threads=2, held=4))
    assert counted.opened == counted.closed


def test_process_ends_with_values_left_untaken() -> None:
    script = (
        "from lakeformat.read.run.parallel import read_in_order\n"
        "values = read_in_order(((at for at in range(99)) for _ in range(9)), threads=3, held=6)\n"
        "print(next(values), next(values))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("0 1\n", "")
