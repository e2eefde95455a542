"""Tables of every kind follow a dictionary through any sequence of writes and services."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.helpers.maintained_table import KeptTable
from tests.helpers.written_table import Kind, WrittenTable

STEPS: Final = 40
KINDS: Final = [Kind(version, is_merge_on_read) for is_merge_on_read in (False, True) for version in (6, 8, 9)]
#: `make test-slow` runs two kinds that differ, `make nightly` the others.
SLOW_OR_NIGHTLY: Final = [
    pytest.param(kind, marks=pytest.mark.slow if kind in (Kind(6, True), Kind(9, True)) else pytest.mark.nightly)
    for kind in KINDS
]


def run(machine: type[WrittenTable], kind: Kind, examples: int, steps: int = STEPS) -> Any:
    """Run ``examples`` random lives of tables of one kind."""
    one = type("One", (machine,), {"kind": kind, "steps": 0, "exact": 0, "reached": Counter()})
    run_state_machine_as_test(
        one,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    assert one.steps >= examples * steps // 2
    assert one.exact >= examples // 2
    return one


@pytest.mark.parametrize("kind", [Kind(6, False), Kind(9, True)], ids=str)
def test_tables_follow_a_dictionary(kind: Kind) -> None:
    run(KeptTable, kind, examples=3, steps=STEPS // 3)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_lives_of_writes(kind: Kind) -> None:
    run(WrittenTable, kind, examples=5)


@pytest.mark.budget(60)
@pytest.mark.parametrize("kind", SLOW_OR_NIGHTLY, ids=str)
def test_lives_with_all_services(kind: Kind) -> None:
    assert "savepoint" in run(KeptTable, kind, examples=15).reached


@pytest.mark.nightly
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_many_lives(kind: Kind) -> None:
    assert run(KeptTable, kind, examples=400).reached.keys() >= {"savepoint", "restore", "rollback"}
