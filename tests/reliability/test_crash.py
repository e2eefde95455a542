"""A writer dies at every one of its calls to storage, and half-way through it; the table must not notice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeformat.storage import LocalStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.rollback import recover
from tests.helpers.crashing import assert_recovered, calls_of, crashed, failures_of, worth_it
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, SteppingClock, at
from tests.helpers.flights import WRITES, WRITES_BY_NIGHT, Model, Write, copy_of

#: A second crash follows the first in one case in so many.
TWICE_EVERY = 4


def _marks(write: Write, mode: Mode) -> tuple[pytest.MarkDecorator, ...]:
    """Say when a case runs: deaths after and within calls often, deaths before calls, which differ least, rarely."""
    if write.operation == "upsert":
        return (pytest.mark.slow,) if mode is Mode.BEFORE else ()
    return (pytest.mark.nightly,) if mode is Mode.BEFORE else (pytest.mark.slow,)


CRASHES = [
    pytest.param(write, mode, marks=_marks(write, mode), id=f"{write.operation}-{mode}")
    for write in WRITES
    for mode in Mode
]


@pytest.mark.parametrize(("write", "mode"), CRASHES)
def test_a_crash_at_every_call(write: Write, mode: Mode, template: tuple[Path, Model], tmp_path: Path) -> None:
    assert failures_of(write, mode, template, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES_BY_NIGHT, ids=lambda write: write.operation)
def test_a_second_crash_in_the_recovery(write: Write, template: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = template
    after = write.applied(before)
    changing = worth_it(calls_of(write, copy_of(path, tmp_path)), Mode.AFTER)
    failures = []
    for first in changing[1::TWICE_EVERY]:
        dead = copy_of(path, tmp_path)
        assert crashed(write, dead, first, Mode.AFTER)
        recovery = recovery_of(copy_of(Path(dead.root), tmp_path), None)
        for mode, second in [(mode, n) for mode in Mode for n in worth_it(recovery, Mode.AFTER)]:
            storage = copy_of(Path(dead.root), tmp_path)
            try:
                with pytest.raises(Crash):
                    recovery_of(storage, Fault(at(second), mode))
                assert_recovered(storage, before, after, False)
            except Exception as error:
                failures.append(f"calls {first}, {second} {mode} {recovery[second]}: {error}")
            else:
                shutil.rmtree(storage.root)
    assert failures == []


def recovery_of(storage: LocalStorage, fault: Fault | None) -> list[Call]:
    """What the next writer does first, under the lock. Returns its calls."""
    faulty = FaultyStorage(storage, fault)
    store = TimelineStore(faulty)
    with faulty.lock(0):
        recover(store, store.config(), SteppingClock())
    return faulty.calls


def test_a_crash_while_the_metadata_table_is_dropped(template: tuple[Path, Model], tmp_path: Path) -> None:
    """A table of Hudi's with a metadata table, which would lack our commit: it goes before the commit shows."""
    path, before = template
    write = WRITES[0]
    theirs = copy_of(path, tmp_path)
    properties = Path(theirs.root, ".hoodie/hoodie.properties")
    with properties.open("a") as file:
        file.write("hoodie.table.metadata.partitions=files\n")
    Path(theirs.root, ".hoodie/metadata/.hoodie").mkdir(parents=True)
    Path(theirs.root, ".hoodie/metadata/.hoodie/hoodie.properties").write_text("hoodie.table.name=x\n")

    calls = calls_of(write, copy_of(Path(theirs.root), tmp_path))
    paths = ("hoodie.properties", ".hoodie/metadata")
    dropping = [n for n, call in enumerate(calls) if any(path in call.path for path in paths)]
    assert {calls[n].name for n in dropping} == {"read", "replace", "delete", "info", "delete_folder"}
    for mode, number in [(mode, n) for mode in Mode for n in dropping if calls[n].changes]:
        storage = copy_of(Path(theirs.root), tmp_path)
        assert crashed(write, storage, number, mode)
        assert_recovered(storage, before, write.applied(before), True)
        assert not Path(storage.root, ".hoodie/metadata").exists()
        assert not TimelineStore(storage).config().has_metadata_table
