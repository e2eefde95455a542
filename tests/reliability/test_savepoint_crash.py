"""A process dies at every call while it makes or deletes a savepoint. No row changes, and the call can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.storage import LocalStorage
from tests.helpers.crashing import assert_recovered, calls_to_fail
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import Model, copy_of, grow_old, make_template, open_at, rows_of

KINDS = [("6", "COPY_ON_WRITE"), ("8", "MERGE_ON_READ"), ("9", "COPY_ON_WRITE")]


def savepoint(table: lakeformat.Table) -> None:
    """Make a savepoint of the second commit, unless it has one."""
    if len(table.savepoints()) < 2:
        table.savepoint(table.history()[-2].instant_time)


def delete_savepoint(table: lakeformat.Table) -> None:
    """Delete the savepoint of the first commit, if it has one."""
    if table.savepoints():
        table.delete_savepoint(table.savepoints()[0].instant_time)


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """Return a table of two commits, the first of which has a savepoint."""
    version, table_type = request.param
    path, model = make_template(tmp_path_factory.mktemp("saved"), version=version, table_type=table_type)
    table = lakeformat.open(path)
    table.savepoint(table.history()[-1].instant_time)
    return path, model


def count_savepoints(storage: LocalStorage) -> int:
    return len(open_at(storage, "reader").savepoints())


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.AFTER, Mode.TORN])
@pytest.mark.parametrize(("verb", "wanted"), [(savepoint, 2), (delete_savepoint, 0)])
def test_savepoint_call_that_dies_at_any_change_can_be_repeated(
    verb: Callable[[lakeformat.Table], None], wanted: int, mode: Mode, saved: tuple[Path, Model], tmp_path: Path
) -> None:
    """Repeating the call completes it.

    Without a repetition, the pending instant disappears later: archiving waits for it.
    """
    path, before = saved
    recording = FaultyStorage(copy_of(path, tmp_path))
    verb(open_at(recording, "saver"))
    assert count_savepoints(recording.inner) == wanted
    for number in calls_to_fail(recording.calls, mode):
        for tries_again in (False, True):
            storage = copy_of(path, tmp_path)
            with pytest.raises(Crash):
                verb(open_at(FaultyStorage(storage, Fault(at(number), mode)), "saver"))
            assert rows_of(storage) == before
            assert count_savepoints(storage) in (1, wanted)
            if tries_again:
                verb(open_at(storage, "again"))
                assert count_savepoints(storage) == wanted, recording.calls[number]
            grow_old(Path(storage.root))
            assert_recovered(storage, before, before, False)
