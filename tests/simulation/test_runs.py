"""Several writers, services and readers on an object store with faults lose nothing, whatever the seed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.simulation.storage import Faults
from tests.simulation.workload import make_plan, run

_CHUNK = 50


def _check(seeds: Iterable[int]) -> None:
    wrong = {seed: problems for seed in seeds if (problems := run(make_plan(seed)).problems())}
    assert not wrong


def test_one_seed_replays_one_run() -> None:
    plan = make_plan(7)
    first, second = run(plan, keeps_trace=True), run(plan)
    assert first.digest == second.digest
    assert first.history == second.history
    assert first.digest != run(make_plan(8)).digest


def test_a_run_meets_faults_and_conflicts() -> None:
    seen = " ".join(line for seed in range(10) for line in run(make_plan(seed), keeps_trace=True).bucket.trace or ())
    assert {"late", "lost", "VersionChangedError", "kill", "stop"} <= set(seen.split())


def test_writers_without_faults_are_all_acknowledged_or_refused() -> None:
    result = run(make_plan(3, faults=Faults()))
    assert not result.problems()
    assert {operation.outcome.value for operation in result.history.operations[6:]} <= {"acknowledged", "refused"}


def test_a_dozen_seeds_lose_nothing() -> None:
    _check(range(12))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, _CHUNK))
def test_a_thousand_seeds_lose_nothing(first: int) -> None:
    _check(range(first, first + _CHUNK))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(1000, 21_000, 500))
def test_twenty_thousand_seeds_lose_nothing(first: int) -> None:
    _check(range(first, first + 500))
