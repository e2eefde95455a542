"""The process that compacts dies at every one of its calls to storage. Readers see the rows that they saw before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.model.files import BaseFileName
from lakeformat.model.instant import Action
from lakeformat.storage import LocalStorage, Storage
from lakeformat.storage.port import HOODIE, OWN
from tests.helpers import hudi_rs
from tests.helpers.appending import Append
from tests.helpers.faulty import MODES, Call, Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.fixture_tables import unpack
from tests.helpers.flights import copy_of, open_at

HUDI_RS_EVERY = 9
#: One in this many of the calls that only read.
READS_EVERY = 9
TABLES = {6: "hudi_mor_v6/mor6_partitioned_deletes", 9: "hudi_v8_v9/v9_mor_compacted_partitioned"}
#: Options for base files of many row groups, most of which a compaction copies.
SMALL_GROUPS = {"lakeformat.parquet.row.group.rows": 20}


def make_copied_table(folder: Path) -> Path:
    """Make a table with log rows for one of its five row groups."""
    columns = {"id": "string", "ts": "int64", "name": "string"}
    version = {"hoodie.write.table.version": 9}
    table = lakeformat.create(
        folder / "copied", columns, record_key="id", table_type="MERGE_ON_READ", **version, **SMALL_GROUPS
    )
    rows = [{"id": f"key-{number:03}", "ts": number, "name": "x"} for number in range(100)]
    table.insert(rows)
    table.upsert(rows[31:33])
    return folder / "copied"


def schedule(storage: Storage) -> None:
    open_at(storage, "planner").schedule_compaction()


def run(storage: Storage) -> None:
    open_at(storage, "runner").run_compaction()


def run_copying(storage: Storage) -> None:
    result = open_at(storage, "runner", SMALL_GROUPS).run_compaction()
    assert "copied rows 80" in result.describe()


def compact(storage: Storage) -> None:
    open_at(storage, "compactor").compact()


def cancel(storage: Storage) -> None:
    table = open_at(storage, "canceller")
    for instant in table.snapshot().timeline.pending:
        if instant.action is Action.COMPACTION:
            table.cancel_compaction(instant.time)


def cases(calls: list[Call], mode: Mode) -> list[int]:
    return [
        number
        for number, call in enumerate(calls)
        if call.changes or (mode is Mode.BEFORE and number % READS_EVERY == 0)
    ]


def read_rows(storage: Storage) -> list[str]:
    """Return all rows with their meta columns except the file name."""
    rows = lakeformat.Table(storage).to_arrow(meta_columns=True).drop_columns(["_hoodie_file_name"])
    return sorted(map(repr, rows.to_pylist()))


def leftovers(storage: LocalStorage) -> list[str]:
    """Return pending instants, base files that no commit names, markers, claims and stages."""
    store = lakeformat.Table(storage).context.store
    timeline = store.load()
    named = {stat.path for instant in timeline.commits for stat in store.read_commit(instant).all_stats()}
    root = Path(storage.root)
    files = {str(path.relative_to(root)) for path in root.rglob("*.parquet") if BaseFileName.match(path.name)}
    folders = f"{HOODIE}/.temp", f"{HOODIE}/.heartbeat", f"{OWN}/pending", f"{OWN}/stage"
    return [
        *(instant.time for instant in timeline.pending),
        *sorted(files - named),
        *(entry.path for folder in folders for entry in storage.list(folder)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("act", "version"),
    [(schedule, 6), (schedule, 9), (run, 6), (run, 9), (run_copying, 9), (compact, 6), (cancel, 6), (cancel, 9)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_compaction_step_that_dies_at_any_call_is_finished_by_the_next_writer(
    act: Callable[[Storage], None], version: int, mode: Mode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The next process can write at once, and compacts. Rows and files are then as if no process had died."""
    folder = tmp_path_factory.mktemp("crash")
    path = make_copied_table(folder) if act is run_copying else unpack(TABLES[version], folder)
    if act in {run, run_copying, cancel}:
        schedule(LocalStorage(str(path)))
    before = read_rows(LocalStorage(str(path)))
    recording = FaultyStorage(copy_of(path, folder))
    act(recording)
    assert read_rows(recording.inner) == before
    for number in cases(recording.calls, mode):
        storage = copy_of(path, folder)
        with pytest.raises(Crash):
            act(FaultyStorage(storage, Fault(at(number), mode)))
        call = recording.calls[number]
        assert read_rows(storage) == before, call
        written = Append(lakeformat.Table(storage)).run()
        assert written.seen(), call
        now = read_rows(storage)
        while not open_at(storage, "next").compact().skipped:
            pass
        assert read_rows(storage) == now, call
        assert not lakeformat.Table(storage).snapshot().live.has_logs, call
        assert leftovers(storage) == [], call
        if number % HUDI_RS_EVERY == 0:
            hudi_rs.assert_same_rows(lakeformat.Table(storage))
