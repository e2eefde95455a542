"""Repetition after conflicts: for a time, with waits that suit the length of an attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import pytest

from lakeformat.concurrency import Attempts, Patience, pause, poll, tries, use_backend
from lakeformat.errors import WriteConflictError
from lakeformat.transaction.order.conflict import OverlapError, PendingActionError, repeat_after


class Clock:
    """Virtual time. It notes the waits."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, list[float]()

    def thread_pool(self, threads: int) -> AbstractContextManager[Executor]:
        return ThreadPoolExecutor(threads)

    def every(self, seconds: float, action: Callable[[], bool], name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    with use_backend(clock):
        yield clock


def run(clock: Clock, patience: Patience, seconds: float, token: str, *, is_stuck: bool = False) -> int:
    """Make attempts that all fail after some seconds. Return their number."""
    attempts, count = Attempts(patience, lambda: token, level=logging.DEBUG), 0
    while True:
        count += 1
        clock.now += seconds
        if not attempts.wait(WriteConflictError("a conflict"), is_stuck=is_stuck):
            return count


@pytest.mark.parametrize("seconds", [0.03, 1.0, 4.0, 60.0])
def test_attempts_go_on_for_the_time_and_not_longer(seconds: float, clock: Clock) -> None:
    count = run(clock, Patience(300), seconds, "ffffffff")
    last_began = clock.now - seconds
    assert 300 - max(clock.waits) - seconds <= last_began < 300 + max(clock.waits)
    assert count == len(clock.waits) + 1
    assert max(clock.waits) <= min(10, max(1.6, seconds))
    assert clock.waits == sorted(clock.waits)  # The longest possible waits, since the token is the greatest.


def test_a_number_of_repetitions_is_obeyed_too(clock: Clock) -> None:
    assert run(clock, Patience(300, 0), 0.1, "80000000") == 1
    assert run(clock, Patience(300, 12), 0.1, "80000000") == 13
    assert run(clock, Patience(0), 0.1, "80000000") == 1


def test_a_conflict_that_only_another_process_ends_is_repeated_a_few_times(clock: Clock) -> None:
    assert run(clock, Patience(300), 0.01, "ffffffff", is_stuck=True) == 6
    assert run(clock, Patience(300, 2), 0.01, "ffffffff", is_stuck=True) == 3
    assert clock.now < 5


def test_late_attempts_are_those_after_the_number_or_after_five(clock: Clock) -> None:
    late = {None: 5, 2: 2, 8: 8}
    for number, first in late.items():
        attempts = Attempts(Patience(300, number), lambda: "00000000", level=logging.DEBUG)
        seen = [attempts.is_late]
        while len(seen) <= first:
            assert attempts.wait(WriteConflictError("a conflict"))
            seen.append(attempts.is_late)
        assert seen == [False] * first + [True]
    assert not Attempts(Patience(300, 0), lambda: "").is_late


class Unlucky:
    """An action that fails with these errors before it succeeds. It notes what is called."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), list[str]()

    def __call__(self) -> str:
        self.calls.append("action")
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def repeat(self, patience: Patience) -> str:
        attempts = Attempts(patience, lambda: "80000000", level=logging.DEBUG)
        return repeat_after(WriteConflictError, self, attempts, lambda: self.calls.append("forget"))


@pytest.mark.usefixtures("clock")
def test_action_is_repeated_after_conflicts_until_it_succeeds() -> None:
    action = Unlucky(OverlapError("first"), WriteConflictError("second"))
    assert action.repeat(Patience(300)) == "done"
    assert action.calls == ["action", "forget", "action", "forget", "action"]


@pytest.mark.usefixtures("clock")
def test_error_of_the_last_attempt_is_raised() -> None:
    action = Unlucky(*(WriteConflictError(f"conflict {number}") for number in range(9)))
    with pytest.raises(WriteConflictError, match="conflict 2"):
        action.repeat(Patience(300, 2))
    assert action.calls == ["action", "forget", "action", "forget", "action"]


@pytest.mark.usefixtures("clock")
def test_other_errors_are_not_repeated() -> None:
    action = Unlucky(ValueError("no conflict"))
    with pytest.raises(ValueError, match="no conflict"):
        action.repeat(Patience(300))
    assert action.calls == ["action"]


@pytest.mark.usefixtures("clock")
def test_pending_action_is_waited_for_a_few_times_only() -> None:
    stuck, free = (Unlucky(*(kind("busy") for _ in range(9))) for kind in (PendingActionError, OverlapError))
    with pytest.raises(PendingActionError):
        stuck.repeat(Patience(300))
    assert stuck.calls.count("action") == 6
    assert free.repeat(Patience(300)) == "done"


@pytest.mark.parametrize(("token", "least", "waited"), [("00000000", 0, 0), ("80000000", 0, 2), ("80000000f", 1, 2.5)])
def test_a_pause_is_a_share_of_the_longest(token: str, least: float, waited: float, clock: Clock) -> None:
    pause(4, token, least=least)
    assert clock.waits == [waited]


def test_tries_wait_between_and_not_after_the_last(clock: Clock) -> None:
    assert list(tries((0.5, 2))) == [False, False, True]
    assert clock.waits == [0.5, 2]
    for _ in tries((0.5,)):
        break  # The first try succeeded.
    assert clock.waits == [0.5, 2]


@pytest.mark.parametrize(("done_at", "seconds", "waits"), [(0, 0, 0), (3, 3, 3), (4, 3, 3), (1, 0, 0)])
def test_polling_ends_when_done_or_when_the_time_is_over(
    done_at: float, seconds: float, waits: int, clock: Clock
) -> None:
    is_done = poll(lambda: clock.now >= done_at, seconds, lambda: clock.sleep(1))
    assert (is_done, len(clock.waits)) == (done_at <= seconds, waits)
