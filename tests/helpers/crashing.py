"""A write that dies at a call to storage, and the state that must hold afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import lakeformat
from lakeformat.services.doctor.findings import Findings, Kind
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import NEXT, Model, Write, copy_of, leftovers, open_at, rows_of

__all__ = ["LEFT", "assert_recovered", "assert_well", "calls_of", "calls_to_fail", "dies_at", "failures_of"]

#: hudi-rs reads one case in this many.
HUDI_RS_EVERY = 7
#: The findings that a crash may leave until the next write.
LEFT: Final = frozenset({Kind.DEAD_INSTANT, Kind.STALE_MARKERS})


def calls_of(write: Write, storage: LocalStorage) -> list[Call]:
    """Run a write without a fault and return its calls to storage."""
    recording = FaultyStorage(storage)
    write.run(open_at(recording, "writer"))
    return recording.calls


def dies_at(write: Write, storage: LocalStorage, number: int, mode: Mode) -> bool:
    """Run a write that dies at this call. Return whether it died."""
    try:
        write.run(open_at(FaultyStorage(storage, Fault(at(number), mode)), "writer"))
    except Crash:
        return True
    return False


def calls_to_fail(calls: list[Call], mode: Mode) -> list[int]:
    """Return the numbers of the calls to die at. A call that only reads counts in mode BEFORE only."""
    return [number for number, call in enumerate(calls) if call.changes or mode is Mode.BEFORE]


def assert_well(storage: LocalStorage, allowed: frozenset[Kind] = frozenset(), *, contents: bool = True) -> None:
    """Check that `Table.check` finds only the allowed kinds.

    In layout 1, log files keep the bytes of a dead writer, so torn log files are always allowed there.
    """
    table = lakeformat.Table(storage)
    if not table.context.store.load().layout.has_completion_times:
        allowed |= {Kind.TORN_LOG}
    found = tuple(each for each in table.check(contents=contents) if each.kind not in allowed)
    assert not found, str(Findings(found))


def assert_recovered(storage: LocalStorage, before: Model, after: Model, hudi_rs_too: bool) -> None:
    """Check that a table has recovered from a dead writer.

    A reader sees the rows before or after the write. The next writer continues from these rows, and then no file of
    the dead writer is left.

    The doctor finds nothing except the allowed leftovers before the next writer, and nothing after it.
    """
    seen = rows_of(storage)
    assert seen in (before, after)
    assert_well(storage, LEFT, contents=False)
    NEXT.run(open_at(storage, "next"))
    assert rows_of(storage) == NEXT.applied(seen)
    assert leftovers(storage) == []
    assert_well(storage)
    if hudi_rs_too:
        hudi_rs.assert_same_rows(open_at(storage, "reader"))


def failures_of(write: Write, mode: Mode, template: tuple[Path, Model], folder: Path) -> list[str]:
    """Let the write die at each of its calls, each time on a fresh copy. Return the cases that did not recover."""
    path, before = template
    after = write.applied(before)
    undisturbed = copy_of(path, folder)
    calls = calls_of(write, undisturbed)
    assert rows_of(undisturbed) == after
    assert leftovers(undisturbed) == []
    failures = []
    for number in calls_to_fail(calls, mode):
        storage = copy_of(path, folder)
        try:
            assert dies_at(write, storage, number, mode)
            assert_recovered(storage, before, after, number % HUDI_RS_EVERY == 0)
        except Exception as error:
            failures.append(f"call {number}, {calls[number]}: {type(error).__name__}: {error}")
        else:
            shutil.rmtree(storage.root)
    return failures
