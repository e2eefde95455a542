"""The file index when commits finish out of order and at once: readers never use an index that lacks a commit."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.file_index.stored import FOLDER, IndexName
from lakeformat.storage.port import Storage
from tests.helpers.faulty import Call, CountingIds, FaultyStorage, SteppingClock, UnlockedStorage
from tests.helpers.flights import Model, Write, copy_of, make_template, rows_of
from tests.helpers.index_tables import compare_with_listing

FIRST = Write("upsert", (0,), "first")
OURS = Write("bulk_insert", (100, 101), "ours")
THEIRS = Write("bulk_insert", (200, 201, 202), "theirs")
LAST = Write("upsert", (0, 100, 200), "last")
EACH_COMMIT = {"lakeformat.file.index.commits": 1}
OPTIONS = pytest.mark.parametrize("options", [{}, EACH_COMMIT], ids=["deltas", "snapshots"])


def open_by(storage: Storage, name: str, options: dict[str, int]) -> lakeformat.Table:
    return lakeformat.Table(storage, resolve(options), clock=SteppingClock(), ids=CountingIds(name))


@pytest.fixture(params=["6", "8"])
def past(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[UnlockedStorage, Model]:
    path, model = make_template(tmp_path, version=request.param)
    return UnlockedStorage(copy_of(path, tmp_path).root), model


def calls_of(storage: UnlockedStorage, options: dict[str, int], folder: Path) -> list[Call]:
    """Return the calls of our write, recorded on a copy of the table."""
    recorder = FaultyStorage(UnlockedStorage(copy_of(Path(storage.root), folder).root))
    OURS.run(open_by(recorder, "ours", options))
    return recorder.calls


def interrupt(storage: UnlockedStorage, number: int, options: dict[str, int]) -> FaultyStorage:
    """Return a storage at whose call of this number the other process writes."""
    interrupted = FaultyStorage(storage)

    def meanwhile(_: Call) -> None:
        if len(interrupted.calls) == number + 1:
            THEIRS.run(open_by(storage, "theirs", options))

    interrupted.meanwhile = meanwhile
    return interrupted


def in_index(call: Call) -> bool:
    return call.path.startswith(FOLDER)


@pytest.mark.slow
@OPTIONS
def test_index_holds_all_commits_that_finish_out_of_order(
    options: dict[str, int], past: tuple[UnlockedStorage, Model], tmp_path: Path
) -> None:
    """Another commit begins and ends before each call with which ours updates the index."""
    storage, model = past
    numbers = [at for at, call in enumerate(calls_of(storage, options, tmp_path)) if in_index(call)]
    assert numbers
    for number in numbers:
        copy = UnlockedStorage(copy_of(Path(storage.root), tmp_path).root)

        OURS.run(open_by(interrupt(copy, number, options), "ours", options))
        assert rows_of(copy) == THEIRS.applied(OURS.applied(model))
        assert compare_with_listing(lakeformat.Table(copy))
        LAST.run(open_by(copy, "last", options))
        assert rows_of(copy) == LAST.applied(THEIRS.applied(OURS.applied(model)))
        assert compare_with_listing(lakeformat.Table(copy))
        assert str(lakeformat.Table(copy).check()) == "nothing is wrong"


@OPTIONS
def test_reader_sees_the_same_by_index_and_listing_at_each_step_of_a_write(
    options: dict[str, int], past: tuple[UnlockedStorage, Model]
) -> None:
    storage, model = past
    seen: list[Model] = []

    def meanwhile(_: Call) -> None:
        compare_with_listing(lakeformat.Table(storage))
        seen.append(rows_of(storage))

    OURS.run(open_by(FaultyStorage(storage, meanwhile=meanwhile), "ours", options))
    first = seen.index(OURS.applied(model))
    assert seen == [model] * first + [OURS.applied(model)] * (len(seen) - first)


def test_index_with_an_undone_commit_is_not_used(past: tuple[UnlockedStorage, Model]) -> None:
    """On storage without locks an undo leaves an empty commit, so the index seems to hold all commits."""
    storage, model = past
    OURS.run(open_by(storage, "ours", EACH_COMMIT))
    open_by(storage, "undo", {}).rollback()
    compare_with_listing(lakeformat.Table(storage))
    assert rows_of(storage) == model
    THEIRS.run(open_by(storage, "theirs", {}))
    assert compare_with_listing(lakeformat.Table(storage))
    assert rows_of(storage) == THEIRS.applied(model)


def test_delta_of_an_undone_commit_is_not_used(past: tuple[UnlockedStorage, Model]) -> None:
    storage, model = past
    OURS.run(open_by(storage, "ours", {}))
    open_by(storage, "undo", {}).rollback()
    compare_with_listing(lakeformat.Table(storage))
    assert rows_of(storage) == model


def test_index_of_most_commits_costs_one_request(past: tuple[UnlockedStorage, Model], tmp_path: Path) -> None:
    storage, _ = past
    written = [call for call in calls_of(storage, {}, tmp_path) if in_index(call) and call.changes]
    assert [call.name for call in written] == ["open_output"]


def manifests(storage: Storage) -> list[str]:
    """Return the instant times of the snapshots of the index."""
    names = (IndexName.parse(entry.name) for entry in storage.list(FOLDER))
    return sorted(name.instant_time for name in names if name is not None and name.kind == "manifest")


def test_snapshot_is_not_written_again_if_another_writer_has_just_written_it(
    past: tuple[UnlockedStorage, Model], tmp_path: Path
) -> None:
    storage, model = past
    FIRST.run(open_by(storage, "first", EACH_COMMIT))
    before, calls = manifests(storage), calls_of(storage, EACH_COMMIT, tmp_path)
    number = max(at for at, call in enumerate(calls) if call.name == "list" and call.path == FOLDER)
    storage = UnlockedStorage(copy_of(Path(storage.root), tmp_path).root)
    OURS.run(open_by(interrupt(storage, number, EACH_COMMIT), "ours", EACH_COMMIT))
    assert len(manifests(storage)) == len(before) + 1
    assert compare_with_listing(lakeformat.Table(storage))
    assert rows_of(storage) == THEIRS.applied(OURS.applied(FIRST.applied(model)))


def test_snapshot_of_an_undone_commit_does_not_stop_later_ones(past: tuple[UnlockedStorage, Model]) -> None:
    storage, _ = past
    OURS.run(open_by(storage, "ours", EACH_COMMIT))
    undone = manifests(storage)[-1]
    open_by(storage, "undo", {}).rollback()
    for name in ("a", "b"):
        LAST.run(open_by(storage, name, EACH_COMMIT))
    assert manifests(storage)[-1] > undone
    assert compare_with_listing(lakeformat.Table(storage))
