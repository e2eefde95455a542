"""Storage reports an error at any call, or loses an answer: the error is one clean line, and the table is unchanged."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from lakeformat.errors import CommitStateUnknownError, LakeformatError, StorageError, WriteConflictError
from lakeformat.storage import LocalStorage
from tests.helpers.faulty import Call, Fault, FaultyStorage, Mode, at, once
from tests.helpers.flights import NEXT, WRITES, WRITES_BY_NIGHT, Model, Write, copy_of, leftovers, open_at, rows_of

UPSERT, OVERWRITE = WRITES[0], WRITES[4]

_COMPLETED = re.compile(r"\.hoodie/\d{17}\.(commit|replacecommit)")


def completes(_: int, call: Call) -> bool:
    """Tell whether the call makes a commit visible."""
    return call.name == "create" and _COMPLETED.fullmatch(call.path) is not None


def attempt(write: Write, storage: FaultyStorage) -> LakeformatError | None:
    """Run the write. Return the error that the user gets, None if the write succeeds."""
    try:
        write.run(open_at(storage, "writer", {"lakeformat.write.retries": 0}))
    except LakeformatError as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER], ids=["refused", "answer lost"])
@pytest.mark.parametrize("write", WRITES_BY_NIGHT, ids=lambda write: write.operation)
def test_storage_error_at_any_call_leaves_the_table_before_or_after_the_write(
    write: Write, mode: Mode, template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    after = write.applied(before)
    recording = FaultyStorage(copy_of(path, tmp_path))
    assert attempt(write, recording) is None
    failures = []
    for number, call in enumerate(recording.calls):
        if mode is Mode.AFTER and not call.changes:
            continue  # An answer can only be lost after a change.
        storage = copy_of(path, tmp_path)
        try:
            error = attempt(write, FaultyStorage(storage, Fault(at(number), mode, kills=False)))
            assert rows_of(storage) == (after if error is None else before)
            assert error is None or (isinstance(error, StorageError) and "\n" not in str(error)), repr(error)
            NEXT.run(open_at(storage, "next"))
            assert rows_of(storage) == NEXT.applied(after if error is None else before)
            assert leftovers(storage) == []
        except Exception as error:
            failures.append(f"call {number}, {call}: {type(error).__name__}: {error}")
        else:
            shutil.rmtree(storage.root)
    assert failures == []


@pytest.mark.parametrize("write", [UPSERT, OVERWRITE], ids=lambda write: write.operation)
def test_a_failed_write_cleans_up_after_itself(write: Write, template: tuple[Path, Model], tmp_path: Path) -> None:
    storage = copy_of(template[0], tmp_path)
    error = attempt(write, FaultyStorage(storage, Fault(completes, Mode.BEFORE, kills=False)))
    assert isinstance(error, StorageError)
    assert leftovers(storage) == []


@pytest.mark.parametrize("write", [UPSERT, OVERWRITE], ids=lambda write: write.operation)
def test_commit_whose_answer_is_lost_is_recognised(write: Write, template: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    assert attempt(write, FaultyStorage(storage, Fault(completes, Mode.AFTER, kills=False))) is None
    assert rows_of(storage) == write.applied(before)
    assert leftovers(storage) == []


@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER], ids=["not applied", "applied"])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.operation)
def test_unknown_outcome_is_reported_and_keeps_all_files(
    write: Write, mode: Mode, template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    fault = Fault(completes, mode, kills=False, blinds=True)
    faulty = FaultyStorage(storage, fault)
    error = attempt(write, faulty)
    assert isinstance(error, CommitStateUnknownError)
    match = re.search(r"look for (\S+) before running the write again", str(error))
    assert match is not None
    assert Path(match[1]).exists() == (mode is Mode.AFTER)
    failed_at = next(n for n, call in enumerate(faulty.calls) if completes(n, call))
    assert {call.name for call in faulty.calls[failed_at + 1 :] if call.changes} <= {"delete_folder"}
    assert all("/stage/" in call.path for call in faulty.calls[failed_at + 1 :] if call.changes)

    seen = write.applied(before) if mode is Mode.AFTER else before
    assert rows_of(storage) == seen
    NEXT.run(open_at(storage, "next"))
    assert rows_of(storage) == NEXT.applied(seen)
    assert leftovers(storage) == []


def test_completed_file_of_another_writer_is_a_conflict(template: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    theirs = {"partitionToWriteStats": {}, "extraMetadata": {}, "operationType": "UPSERT"}

    def complete_first(call: Call) -> None:
        storage.create(call.path, json.dumps(theirs).encode())

    first = once(lambda call: completes(0, call), complete_first)
    error = attempt(UPSERT, FaultyStorage(storage, meanwhile=first))
    assert isinstance(error, WriteConflictError)
    assert "was completed by another writer" in str(error)
    assert rows_of(storage) == before


def test_undo_after_a_conflict_keeps_files_of_others(template: tuple[Path, Model], tmp_path: Path) -> None:
    """The inner storage is the same folder: the files of others stay when our write is undone."""
    storage = copy_of(template[0], tmp_path)
    kept = LocalStorage(storage.root)
    kept.create("r0/notes.txt", b"theirs")
    error = attempt(UPSERT, FaultyStorage(storage, Fault(completes, Mode.BEFORE, kills=False)))
    assert isinstance(error, StorageError)
    assert kept.read("r0/notes.txt") == b"theirs"
