"""What becomes of a clustering whose calls to storage fail, or beside which others act at the wrong moment."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from reliability.faulty import Call, Fault, FaultyStorage, Mode, at
from reliability.flights import NEXT, Model, copy_of, grow_old, leftovers, open_at, rows_of

import lakeformat
from lakeformat.errors import StorageError

_COMPLETED = re.compile(r"\.hoodie/\d{17}\.replacecommit")


def cluster(table: lakeformat.Table) -> None:
    table.cluster("v")


def run_plan(table: lakeformat.Table) -> None:
    table.run_clustering()


def completes(call: Call) -> bool:
    return call.name == "create" and _COMPLETED.fullmatch(call.path) is not None


def planned(template: Path, folder: Path) -> tuple[Path, str]:
    """A copy of the table with a plan on its timeline, and the plan's instant time."""
    storage = copy_of(template, folder)
    time = open_at(storage, "planner").schedule_clustering("v")
    assert time is not None
    return Path(storage.root), time


@pytest.mark.parametrize("raises", [KeyboardInterrupt, MemoryError, StorageError])
@pytest.mark.parametrize("act", [cluster, run_plan])
def test_nothing_that_fails_after_the_commit_undoes_it(
    act: Callable[[lakeformat.Table], None], raises: type[BaseException], template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    start, _ = planned(path, tmp_path) if act is run_plan else (path, "")
    recording = FaultyStorage(copy_of(start, tmp_path))
    act(open_at(recording, "clusterer"))
    completed = next(number for number, call in enumerate(recording.calls) if completes(call))
    cases = [(completed, Mode.AFTER), *((number, Mode.BEFORE) for number in range(completed + 1, len(recording.calls)))]
    assert len(cases) > 5
    for number, mode in cases:
        storage = copy_of(start, tmp_path)
        fault = Fault(at(number), mode, kills=False, raises=raises)
        with suppress(raises):
            act(open_at(FaultyStorage(storage, fault), "clusterer"))
        assert rows_of(storage) == before, recording.calls[number]
        assert open_at(storage, "reader").history()[0].operation == "cluster"
        grow_old(Path(storage.root))
        NEXT.run(open_at(storage, "next"))
        assert rows_of(storage) == NEXT.applied(before), recording.calls[number]
        assert leftovers(storage) == [], recording.calls[number]
