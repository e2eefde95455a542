"""The filters that the scans of one relation pushed, in one file: each plan holds the rows of all earlier scans."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakeformat.predicate import Always, And, Comparison, Or, Predicate
from lakeformat.spark.pushdown import PlannedRows, _State, confirm_plan, new_log, record_filter

pytestmark = pytest.mark.spark


def less(value: int) -> Predicate:
    """Return a filter as Spark pushes it."""
    return And((Comparison("i", "<", value), Always(True)))


def logged_predicate(*values: int) -> Predicate:
    """Return the predicate that the log keeps of such filters."""
    return Or(tuple(And((Comparison("i", "<", value),)) for value in values))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the log of a new relation."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = new_log()
    assert made is not None
    assert Path(made).parent.stat().st_mode & 0o777 == 0o700
    return made


def test_plan_covers_every_filter_pushed_before(log: str) -> None:
    asked = [record_filter(log, less(value)) for value in (1, 2, 1, 3)]
    assert asked == [
        PlannedRows(logged_predicate(1), 1),
        PlannedRows(logged_predicate(1, 2), 2),
        PlannedRows(logged_predicate(1, 2), 2),
        PlannedRows(logged_predicate(1, 2, 3), 3),
    ]
    assert record_filter(log, Always(True)) == PlannedRows(None, 4)
    assert record_filter(log, less(9)).predicate is None


def test_plan_is_repeated_if_a_filter_was_pushed_meanwhile(log: str) -> None:
    first = record_filter(log, less(1))
    second = record_filter(log, less(2))
    assert confirm_plan(log, first, 1) == second
    assert confirm_plan(log, second, 1) == second


def test_other_processes_see_the_pushed_filters(log: str) -> None:
    record_filter(log, less(1))
    text = "import sys; from lakeformat.spark.pushdown import record_filter; from lakeformat.predicate import *\n"
    text += "print(record_filter(sys.argv[1], Comparison('i', '<', 2)).count)"
    found = subprocess.run([sys.executable, "-c", text, log], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["2"]
    assert record_filter(log, less(3)).count == 3


def test_too_many_different_filters_mean_no_filter(log: str) -> None:
    asked = [record_filter(log, less(value)) for value in range(40)]
    assert [plan.predicate is None for plan in asked] == [False] * 32 + [True] * 8
    assert len(Path(log).read_bytes()) < 10_000


def test_nan_filter_does_not_repeat_the_plan(log: str) -> None:
    asked = record_filter(log, Comparison("d", "=", float("nan")))
    assert (
        confirm_plan(log, asked, 1).count == asked.count == record_filter(log, Comparison("d", "=", float("nan"))).count
    )


def test_torn_or_missing_state_file_means_no_filter(log: str) -> None:
    first = record_filter(log, less(1))
    Path(log).write_bytes(Path(log).read_bytes()[:-3])
    assert confirm_plan(log, first, 1).predicate is None
    assert record_filter(log, less(1)).predicate is None
    Path(log).unlink()
    assert record_filter(log, less(2)).predicate is None
    assert not Path(log).exists()


def test_old_state_files_are_deleted_and_a_foreign_folder_is_not_used(log: str) -> None:
    os.utime(log, (0, 0))
    assert new_log() is not None
    assert not Path(log).exists()
    Path(log).parent.chmod(0o777)
    assert new_log() is None


def test_plans_of_other_processes_without_the_filter_are_awaited() -> None:
    state = _State()
    first = state.place(less(1))
    state.sent = {1: (50.0, 1), 2: (70.0, 0), os.getpid(): (90.0, 0)}
    assert state.stored_by(first) == 70.0
    second = state.place(less(2))
    assert state.stored_by(second) == 70.0
    state.sent[3] = (60.0, 2)
    state.sent.pop(2)
    assert (state.stored_by(first), state.stored_by(second)) == (0.0, 50.0)
