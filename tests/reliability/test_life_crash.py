"""The process that cleans or archives dies at every one of its calls to storage.

Readers see the same rows all the time, and the next writer continues. At the end there are as many files as without the
crash, no instant is lost or pending, and the doctor finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.storage import LocalStorage, Storage
from lakeformat.storage.port import HOODIE, OWN
from lakeformat.timeline.store import TimelineStore
from tests.helpers import hudi_rs
from tests.helpers.crashing import LEFT, assert_well
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import NEXT, SCHEMA, Model, Write, copy_of, open_at, rows_of

HUDI_RS_EVERY = 7
READS_EVERY = 6
SHORT = {
    "hoodie.cleaner.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.parquet.small.file.limit": 0,
}
OFF = {**SHORT, "hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
COMPACTING = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 2}
PAST = [Write("bulk_insert", (0, 1, 2, 3, 4), "0"), *(Write("upsert", (0, 1 + n, 5 + n), str(n)) for n in range(1, 5))]


def clean(storage: Storage) -> None:
    open_at(storage, "cleaner", OFF).clean()


def archive(storage: Storage) -> None:
    open_at(storage, "archiver", OFF).archive(min_commits=2)


def both(storage: Storage) -> None:
    clean(storage)
    archive(storage)


def make_table(folder: Path, version: int, table_type: str = "COPY_ON_WRITE") -> tuple[Path, Model]:
    """Return a table with more commits than are retained, and with compacted log files."""
    path = folder / f"v{version}"
    options = {**OFF, "hoodie.write.table.version": version, "hoodie.table.type": table_type}
    lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", **options)
    model: Model = {}
    table = open_at(LocalStorage(str(path)), "template", {**OFF, **COMPACTING})
    for write in PAST:
        write.run(table)
        model = write.applied(model)
    return path, model


@pytest.fixture(scope="module", params=[6, 9])
def old_table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    return make_table(tmp_path_factory.mktemp("life"), request.param)


def files_of(storage: LocalStorage) -> int:
    files = (path for form in ("*.parquet", "*.log.*") for path in Path(storage.root).rglob(form))
    return sum(HOODIE not in path.parts for path in files)


def settle(storage: LocalStorage) -> None:
    """Run the next writer with all services on."""
    NEXT.run(open_at(storage, "next", SHORT))
    both(storage)


def loose_ends(storage: LocalStorage) -> list[str]:
    folders = (f"{HOODIE}/.heartbeat", f"{OWN}/pending", f"{OWN}/stage")
    pending = [str(instant) for instant in TimelineStore(storage).load().pending]
    return [*pending, *(entry.path for folder in folders for entry in storage.list(folder))]


def cases(calls: list[Call], mode: Mode) -> list[int]:
    return [
        number
        for number, call in enumerate(calls)
        if call.changes or (mode is Mode.BEFORE and number % READS_EVERY == 0)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
def test_cleaning_and_archiving_that_die_at_any_call_change_no_row(
    mode: Mode, old_table: tuple[Path, Model], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("crashes", dies_everywhere(old_table, mode, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "table_type", "mode"),
    [(6, "MERGE_ON_READ", Mode.TORN), (8, "MERGE_ON_READ", Mode.AFTER), (8, "COPY_ON_WRITE", Mode.TORN)],
)
def test_cleaning_and_archiving_that_die_change_no_row_in_other_kinds_of_table(
    version: int, table_type: str, mode: Mode, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("crashes", dies_everywhere(make_table(tmp_path, version, table_type), mode, tmp_path))


def dies_everywhere(old_table: tuple[Path, Model], mode: Mode, tmp_path: Path) -> int:
    """Check a death at every call. Return the number of deaths."""
    path, before = old_table
    undisturbed = copy_of(path, tmp_path)
    was = files_of(undisturbed)
    commits = len(open_at(undisturbed, "reader").history())
    recording = FaultyStorage(undisturbed)
    both(recording)
    assert files_of(undisturbed) < was
    assert rows_of(undisturbed) == before
    settle(undisturbed)
    wanted = files_of(undisturbed), len(open_at(undisturbed, "reader").history())
    assert wanted[1] == commits + 1
    assert loose_ends(undisturbed) == []
    assert_well(undisturbed)
    numbers = cases(recording.calls, mode)
    for number in numbers:
        storage = copy_of(path, tmp_path)
        with pytest.raises(Crash):
            both(FaultyStorage(storage, Fault(at(number), mode)))
        said = recording.calls[number]
        assert rows_of(storage) == before, said
        assert_well(storage, LEFT, contents=False)
        settle(storage)
        assert rows_of(storage) == NEXT.applied(before), said
        assert loose_ends(storage) == [], said
        assert (files_of(storage), len(open_at(storage, "reader").history())) == wanted, said
        assert_well(storage)
        if number % HUDI_RS_EVERY == 0:
            hudi_rs.assert_same_rows(open_at(storage, "reader"))
    return len(numbers)
