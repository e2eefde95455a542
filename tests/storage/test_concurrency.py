"""Threads: pools that live on after their block, and periodic actions that need a thread only if they become due."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from threading import Event

import pytest

from lakeformat.concurrency import every, monotonic, run_ahead, run_all, run_both, thread_pool

#: Longest wait for another thread. A test that works does not wait so long.
LONG = 30.0


def thread_of(_: object) -> int:
    return threading.get_ident()


def pooled_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lakeformat_")}


def test_the_threads_of_a_block_serve_the_next_one() -> None:
    run_all(thread_of, range(8), threads=3)
    before = pooled_threads()
    for _ in range(20):
        assert run_all(thread_of, range(8), threads=3)
        assert run_both(threading.get_ident, lambda: 1)[0] != threading.get_ident()
        assert list(run_ahead(iter(range(5)))) == list(range(5))
    assert len(pooled_threads() - before) <= 3 + 1  # Three may have been two; one runs the pairs.


def test_the_callers_thread_carries_out_one_item() -> None:
    assert run_all(thread_of, [1], threads=4) == [threading.get_ident()]
    with thread_pool(4) as pool:
        assert list(pool.map(thread_of, [1])) == [threading.get_ident()]
        assert list(pool.map(lambda a, b: a + b, [1], [2, 3])) == [3]
        assert list(pool.map(thread_of, [])) == []


def test_pools_in_tasks_of_pools_do_not_wait_for_each_other() -> None:
    def nest(depth: int) -> int:
        return 1 if depth == 0 else sum(run_all(nest, [depth - 1] * 3, threads=2))

    assert nest(4) == 3**4


def test_the_end_of_a_block_waits_for_its_tasks() -> None:
    go, ended = Event(), Event()

    def work() -> None:
        go.wait(LONG)
        ended.set()

    with thread_pool(2) as pool:
        pool.submit(work)
        go.set()
    assert ended.is_set()
    with pytest.raises(RuntimeError, match="is over"):
        pool.submit(work)


def test_the_error_of_the_first_item_that_failed_is_raised_and_the_pool_works_on() -> None:
    def fail(number: int) -> int:
        raise ValueError(number)

    for _ in range(3):
        with pytest.raises(ValueError, match=r"^0$"):
            run_all(fail, range(4), threads=2)
    assert run_all(abs, [-1, -2], threads=2) == [1, 2]


def test_many_wide_pools_leave_no_more_threads_than_the_limit() -> None:
    gate = threading.Barrier(100 + 1)

    def meet(_: int) -> None:
        gate.wait(LONG)

    def block() -> None:
        with thread_pool(10) as pool:
            list(pool.map(meet, range(10)))

    blocks = [threading.Thread(target=block) for _ in range(10)]
    for one in blocks:
        one.start()
    gate.wait(LONG)
    for one in blocks:
        one.join()
    ends = monotonic() + LONG
    while len(pooled_threads()) > 64 and monotonic() < ends:
        min(pooled_threads(), key=lambda thread: thread.name).join(0.01)
    assert len(pooled_threads()) <= 64


def in_child(answers: multiprocessing.Queue[list[int]]) -> None:
    with every(0.001, lambda: False, name="child"):
        answers.put(run_all(abs, [-1, -2, -3], threads=3))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_threads_of_its_own() -> None:
    with every(LONG, lambda: True, name="parent"):
        assert run_all(abs, [-1, -2, -3], threads=3) == [1, 2, 3]
        context = multiprocessing.get_context("fork")
        answers: multiprocessing.Queue[list[int]] = context.Queue()
        child = context.Process(target=in_child, args=(answers,))
        child.start()
        assert answers.get(timeout=LONG) == [1, 2, 3]
        child.join(LONG)
        assert child.exitcode == 0


@pytest.mark.parametrize(
    "last",
    [
        "pass",
        "raise SystemExit(0)",
        "ahead = run_ahead(iter(range(9))); next(ahead)",
        "every(0.001, lambda: True, name='p').__enter__()",
    ],
)
def test_a_process_ends_although_threads_live(last: str) -> None:
    program = f"""
        from lakeformat.concurrency import every, monotonic, run_ahead, run_all
        print(run_all(abs, [-1, -2], threads=2), flush=True)
        {last}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2]\n", "")


def test_a_periodic_action_is_called_until_it_says_no() -> None:
    calls, done = list[int](), Event()

    def act() -> bool:
        calls.append(len(calls))
        if len(calls) == 3:
            done.set()
        return len(calls) < 3

    with every(0.001, act, name="thrice"):
        assert done.wait(LONG)
    assert calls == [0, 1, 2]


def test_a_short_block_starts_no_thread_for_its_periodic_action() -> None:
    with every(LONG, lambda: True, name="first"):
        before = threading.active_count()
        for _ in range(5):
            with every(LONG, lambda: True, name="other"), every(LONG + 1, lambda: True, name="third"):
                assert threading.active_count() == before


@pytest.mark.parametrize("first", [0.001, LONG])
def test_each_action_comes_at_its_own_time(first: float) -> None:
    """An action that is due sooner than all others wakes the thread that waits for them."""
    seen = Event()

    def notice() -> bool:
        seen.set()
        return True

    with every(first, lambda: True, name="first"), every(0.002, notice, name="second"):
        assert seen.wait(LONG)


def test_the_end_of_the_block_waits_for_the_call_that_runs_and_no_other_follows() -> None:
    began, go, ended = Event(), Event(), list[int]()

    def act() -> bool:
        began.set()
        go.wait(LONG)
        ended.append(1)
        return True

    with every(0.001, act, name="slow"):
        assert began.wait(LONG)
        go.set()
    assert ended
    count = len(ended)
    with every(0.001, _set(again := Event()), name="next"):
        assert again.wait(LONG)
    assert len(ended) == count


def _set(event: Event) -> Callable[[], bool]:
    def act() -> bool:
        event.set()
        return True

    return act
