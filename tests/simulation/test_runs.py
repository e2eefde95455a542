"""Several writers, services and readers on an object store with faults lose nothing, whatever the seed.

A seed does something else as soon as a verb sends one request more. Therefore the runs that once went wrong are
recorded plans (`recorded`), which keep their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from tests.simulation.leftovers import list_late_files
from tests.simulation.recorded import NAMES, UNDOING, load_plan
from tests.simulation.storage import Faults
from tests.simulation.workload import Run, make_plan, run


def _check(seeds: Iterable[int], **changes: object) -> None:
    wrong = {seed: problems for seed in seeds if (problems := run(make_plan(seed, **changes)).problems())}
    assert not wrong


def test_one_seed_replays_one_run() -> None:
    plan = make_plan(7)
    first, second = run(plan, keeps_trace=True), run(plan)
    assert first.digest == second.digest
    assert first.history == second.history
    assert first.digest != run(make_plan(8)).digest


@pytest.mark.slow
def test_a_run_meets_faults_and_conflicts() -> None:
    seen = " ".join(line for seed in range(10) for line in run(make_plan(seed), keeps_trace=True).bucket.trace or ())
    assert {"late", "lost", "VersionChangedError", "kill", "stop"} <= set(seen.split())


def test_writers_without_faults_are_all_acknowledged_or_refused() -> None:
    result = run(make_plan(3, faults=Faults()))
    assert not result.problems()
    assert {operation.outcome.value for operation in result.history.operations[6:]} <= {"acknowledged", "refused"}


@pytest.mark.parametrize("first", range(0, 12, 3))
def test_a_dozen_seeds_lose_nothing(first: int) -> None:
    _check(range(first, first + 3))


#: Most recorded decisions that may be without their request before a plan must be recorded again.
_UNMET_SHARE: Final = 0.2


def _replay(name: str) -> Run:
    """Run a recorded plan, and check that it still is the run that it was."""
    plan = load_plan(name)
    result = run(plan)
    assert result.problems() == []
    assert plan.recorded is not None
    share = len(result.unmet) / len(plan.recorded)
    assert share <= _UNMET_SHARE, f"{name} is another run today: find a seed that does the same, and record it"
    return result


@pytest.mark.parametrize("kind", ["v6-cow", "v9-cow", "v9-mor"])
def test_late_data_files_of_undone_commits_are_never_read(kind: str) -> None:
    """In two recorded runs of each kind of table many data files arrive after their commit was undone."""
    runs = [_replay(name) for name in NAMES if name.startswith(f"late-{kind}-")]
    assert any(list_late_files(each) for each in runs)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("late-")])
def test_metadata_table_has_exactly_what_is_committed(name: str) -> None:
    """A reader that lists files from the metadata table by Hudi's rules sees the same rows as all others.

    In the recorded runs a restore begins while another process looks for dead writers; a process dies between the
    removal of an undo's deltacommit and of its log files; two processes plan a compaction at once; a writer is undone
    before its compaction.
    """
    _replay(name)


@pytest.mark.budget(40)
@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [*range(0, 50, 10), *(pytest.param(first, marks=pytest.mark.nightly) for first in range(50, 100, 10))]
)
def test_metadata_table_of_a_hundred_seeds_has_exactly_what_is_committed(first: int) -> None:
    _check(range(first, first + 10), has_metadata_table=True)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 2100, 100))
def test_metadata_table_of_two_thousand_seeds_has_exactly_what_is_committed(first: int) -> None:
    _check(range(first, first + 100), has_metadata_table=True, verbs=UNDOING)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 150, 15))
def test_a_hundred_and_fifty_seeds_lose_nothing(first: int) -> None:
    _check(range(first, first + 15))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 21_000, 500))
def test_twenty_thousand_seeds_lose_nothing(first: int) -> None:
    _check(range(first, first + 500))
