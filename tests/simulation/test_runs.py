"""Several writers, services and readers on an object store with faults lose nothing, whatever the seed.

A seed does something else as soon as a verb sends one request more. A comment on a seed says what it did when it was
chosen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from tests.simulation.storage import Faults
from tests.simulation.workload import list_late_files, make_plan, run


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


def test_a_dozen_seeds_lose_nothing() -> None:
    _check(range(12))


#: Plans in which many data files arrive after their commit was undone.
_LATE: Final = {
    "verbs": {"append": 3, "upsert": 1, "rollback": 2, "restore": 1},
    "faults": Faults(lost=0.2, late=0.9, late_seconds=300),
}


@pytest.mark.parametrize(
    ("version", "kind", "seeds"),
    [(6, "COPY_ON_WRITE", (7, 23)), (9, "COPY_ON_WRITE", (2, 5)), (9, "MERGE_ON_READ", (7, 14))],
)
def test_late_data_files_of_undone_commits_are_never_read(version: int, kind: str, seeds: Iterable[int]) -> None:
    options = {"hoodie.write.table.version": version, "hoodie.datasource.write.table.type": kind}
    runs = [run(make_plan(seed, options=options, **_LATE)) for seed in seeds]
    assert not {each.plan.seed: problems for each in runs if (problems := each.problems())}
    assert any(list_late_files(each) for each in runs)


#: Many undos, which must take back what the commits have recorded in the metadata table.
_UNDOING: Final = {"append": 3, "upsert": 1, "insert": 2, "clean": 1, "rollback": 2, "restore": 1, "cluster": 1}


@pytest.mark.slow
def test_metadata_table_has_exactly_what_is_committed() -> None:
    """A reader that lists files from the metadata table by Hudi's rules sees the same rows as all others.

    In 110 a restore begins while another process looks for dead writers. In 523 a process dies between the removal of
    an undo's deltacommit and of its log files. In 385 a log file of an undone write arrives after a compaction chose
    its time. In 1319 two processes plan a compaction at once. In 913 a writer was undone before its compaction.
    """
    _check((3, 4, 110, 385, 523, 913, 1319), has_metadata_table=True, verbs=_UNDOING)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, pytest.param(50, marks=pytest.mark.nightly)])
def test_metadata_table_of_a_hundred_seeds_has_exactly_what_is_committed(first: int) -> None:
    _check(range(first, first + 50), has_metadata_table=True)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 2100, 100))
def test_metadata_table_of_two_thousand_seeds_has_exactly_what_is_committed(first: int) -> None:
    _check(range(first, first + 100), has_metadata_table=True, verbs=_UNDOING)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 150, 50))
def test_a_hundred_and_fifty_seeds_lose_nothing(first: int) -> None:
    _check(range(first, first + 50))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 21_000, 500))
def test_twenty_thousand_seeds_lose_nothing(first: int) -> None:
    _check(range(first, first + 500))
