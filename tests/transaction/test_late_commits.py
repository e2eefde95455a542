"""A completed file whose answer was lost may arrive late: the table stays whole, whatever was written meanwhile."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import CommitStateUnknownError, LakeformatError
from lakeformat.storage.port import OutcomeUnknownError
from lakeformat.timeline.store import put_once
from tests.helpers.faulty import Call, Fault, FaultyStorage, HoldingStorage, Mode, UnlockedStorage, once
from tests.helpers.flights import (
    NEXT,
    WRITES,
    Model,
    Write,
    assert_whole,
    copy_of,
    make_template,
    open_at,
    rows_of,
)

UPSERT, OVERWRITE = WRITES[0], WRITES[4]
LAST = Write("upsert", (2, 70), "last")
_COMPLETED = re.compile(r"\d{17}(_\d{17})?\.(commit|deltacommit|replacecommit)")
KINDS = [("6", "COPY_ON_WRITE"), ("9", "COPY_ON_WRITE"), ("6", "MERGE_ON_READ"), ("9", "MERGE_ON_READ")]


def is_completed(path: str) -> bool:
    """Tell whether the file makes a commit visible."""
    return _COMPLETED.fullmatch(path.rpartition("/")[2]) is not None


@pytest.fixture(scope="module", params=KINDS, ids=[f"v{version} {kind}" for version, kind in KINDS])
def past(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    version, kind = request.param
    return make_template(tmp_path_factory.mktemp("late"), version=version, table_type=kind)


def unlocked(past: tuple[Path, Model], folder: Path) -> UnlockedStorage:
    return UnlockedStorage(copy_of(past[0], folder).root)


def write_without_answer(
    write: Callable[[lakeformat.Table], object],
    storage: UnlockedStorage,
    meanwhile: Callable[[Call], object] | None = None,
) -> HoldingStorage:
    """Write without an answer to the put of the commit's completed file."""
    holding = HoldingStorage(storage, is_completed, meanwhile=meanwhile)
    with pytest.raises(CommitStateUnknownError, match="before running the write again"):
        write(open_at(holding, "writer"))
    assert len(holding.held) > 1, "the same bytes are put again"
    assert len(set(holding.held)) == 1, "under one name"
    return holding


@pytest.mark.parametrize("write", [UPSERT, OVERWRITE], ids=lambda write: write.operation)
def test_late_commit_file_before_the_next_write_is_accepted(
    write: Write, past: tuple[Path, Model], tmp_path: Path
) -> None:
    storage = unlocked(past, tmp_path)
    holding = write_without_answer(write.run, storage)
    assert rows_of(storage) == past[1]
    assert holding.deliver()
    assert rows_of(storage) == write.applied(past[1])
    NEXT.run(open_at(storage, "next"))
    LAST.run(open_at(storage, "last"))
    assert_whole(storage, LAST.applied(NEXT.applied(write.applied(past[1]))))


@pytest.mark.parametrize("write", [UPSERT, OVERWRITE], ids=lambda write: write.operation)
def test_unanswered_commit_is_completed_by_the_next_writer(
    write: Write, past: tuple[Path, Model], tmp_path: Path
) -> None:
    """The next writer completes it at once, because the first writer has given up."""
    storage = unlocked(past, tmp_path)
    holding = write_without_answer(write.run, storage)
    NEXT.run(open_at(storage, "next"))
    after = NEXT.applied(write.applied(past[1]))
    assert_whole(storage, after)
    assert holding.deliver() == set()
    assert_whole(storage, after)


def test_unanswered_commit_is_completed_by_a_writer_beside_it(past: tuple[Path, Model], tmp_path: Path) -> None:
    """The first writer waits for an answer; the second completes the first commit before it publishes its own."""
    storage = unlocked(past, tmp_path)
    other = once(
        lambda call: call.name == "create" and is_completed(call.path), lambda _: NEXT.run(open_at(storage, "next"))
    )
    holding = HoldingStorage(storage, is_completed, meanwhile=other)
    UPSERT.run(open_at(holding, "writer"))
    assert len(holding.held) == 1
    after = NEXT.applied(UPSERT.applied(past[1]))
    assert_whole(storage, after)
    assert holding.deliver() == set()
    assert_whole(storage, after)


def test_write_interrupted_at_its_last_step_is_complete(past: tuple[Path, Model], tmp_path: Path) -> None:
    """The commit was decided, so the undo that follows the interruption completes it."""
    storage = unlocked(past, tmp_path)
    holding = HoldingStorage(storage, lambda path: is_completed(path) and not holding.held, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        UPSERT.run(open_at(holding, "writer"))
    assert_whole(storage, UPSERT.applied(past[1]))
    assert holding.deliver() == set()
    NEXT.run(open_at(storage, "next"))
    assert_whole(storage, NEXT.applied(UPSERT.applied(past[1])))


def test_commit_answered_at_the_second_try_succeeds(past: tuple[Path, Model], tmp_path: Path) -> None:
    """This holds whether or not the first try was carried out."""
    for mode in (Mode.BEFORE, Mode.AFTER):
        storage = unlocked(past, tmp_path)
        tries: list[str] = []

        def first(_: int, call: Call, tries: list[str] = tries) -> bool:
            if call.name == "create" and is_completed(call.path):
                tries.append(call.path)
            return len(tries) == 1 and call.path == tries[0] and call.name == "create"

        UPSERT.run(
            open_at(FaultyStorage(storage, Fault(first, mode, kills=False, raises=OutcomeUnknownError)), "writer")
        )
        assert len(set(tries)) == 1
        assert_whole(storage, UPSERT.applied(past[1]))


def test_refused_commit_is_completed_by_the_next_writer(past: tuple[Path, Model], tmp_path: Path) -> None:
    """The storage refuses the completed file after the commit was decided."""
    storage = unlocked(past, tmp_path)
    refused = Fault(lambda _, call: call.name == "create" and is_completed(call.path), Mode.BEFORE, kills=False)
    with pytest.raises(CommitStateUnknownError, match="the next writer completes it"):
        UPSERT.run(open_at(FaultyStorage(storage, refused), "writer"))
    assert rows_of(storage) == past[1]
    NEXT.run(open_at(storage, "next"))
    assert_whole(storage, NEXT.applied(UPSERT.applied(past[1])))


@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER], ids=["not carried out", "carried out"])
def test_unanswered_decision_is_settled_by_the_next_writer(
    mode: Mode, past: tuple[Path, Model], tmp_path: Path
) -> None:
    """If the decision was not recorded, the write is undone; if it was, it is completed."""
    storage = unlocked(past, tmp_path)
    lost = Fault(lambda _, call: call.name == "replace_if", mode, kills=False, blinds=True, raises=OutcomeUnknownError)
    with pytest.raises(LakeformatError):
        UPSERT.run(open_at(FaultyStorage(storage, lost), "writer"))
    NEXT.run(open_at(storage, "next"))
    with_ours = NEXT.applied(UPSERT.applied(past[1]))
    assert rows_of(storage) == (with_ours if mode is Mode.AFTER else NEXT.applied(past[1]))


def nth(name: str, number: int) -> Callable[[int, Call], bool]:
    """Return a condition that is true for the call of this number among those of this name."""
    seen = itertools.count()
    return lambda _, call: call.name == name and next(seen) == number


@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER], ids=["not carried out", "carried out"])
def test_refusal_after_a_lost_answer_does_not_count_as_a_refusal_of_the_write(
    mode: Mode, past: tuple[Path, Model], tmp_path: Path
) -> None:
    """The decision's first request gets no answer, its second one is refused."""
    storage = unlocked(past, tmp_path)
    lost = FaultyStorage(storage, Fault(nth("replace_if", 0), mode, kills=False, raises=OutcomeUnknownError))
    refusing = FaultyStorage(lost, Fault(nth("replace_if", 1), Mode.BEFORE, kills=False))
    UPSERT.run(open_at(refusing, "writer"))
    assert_whole(storage, UPSERT.applied(past[1]))


def test_creation_is_unanswered_if_a_later_try_is_refused(past: tuple[Path, Model], tmp_path: Path) -> None:
    storage = unlocked(past, tmp_path)
    lost = Fault(nth("create", 0), Mode.BEFORE, kills=False, raises=OutcomeUnknownError)
    refused = Fault(lambda index, call: call.name == "create" and index > 0, Mode.BEFORE, kills=False)
    with pytest.raises(OutcomeUnknownError):
        put_once(FaultyStorage(FaultyStorage(storage, lost), refused), ".hoodie/late", b"")


@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("service", ["compact", "run_compaction", "cluster", "run_clustering"])
def test_service_without_an_answer_is_completed_or_undone(service: str, version: str, tmp_path: Path) -> None:
    """The plan may stay: other writers have written to the slices that a compaction opened."""
    kind = "MERGE_ON_READ" if "compact" in service else "COPY_ON_WRITE"
    path, before = make_template(tmp_path, version=version, table_type=kind)
    storage = UnlockedStorage(copy_of(path, tmp_path).root)
    if service == "run_compaction":
        lakeformat.Table(storage).schedule_compaction()
        NEXT.run(open_at(storage, "between"))
    elif service == "run_clustering":
        lakeformat.Table(storage).schedule_clustering("v")
    model = NEXT.applied(before) if service == "run_compaction" else before
    holding = write_without_answer(lambda table: getattr(table, service)(), storage)
    assert rows_of(storage) == model
    LAST.run(open_at(storage, "last"))
    assert_whole(storage, LAST.applied(model))
    assert holding.deliver() == set()
    assert_whole(storage, LAST.applied(model))
