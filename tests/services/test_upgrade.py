"""Tables that move between versions: rows, states and settings stay, and every reader finds the timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.codec.timeline_files.clean import decode_clean_plan
from lakeformat.errors import InvalidInputError, WriteConflictError
from lakeformat.file_system_view.file_index.load import load_snapshot
from lakeformat.services.upgrade.run import VersionSession
from lakeformat.storage import LocalStorage, Storage
from lakeformat.timeline.store import TimelineStore
from tests.helpers import hudi_rs
from tests.helpers.clustered import all_rows, all_rows_by_hudi_rs
from tests.helpers.crashing import calls_to_fail
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at, once
from tests.helpers.fixture_tables import names, unpack
from tests.helpers.flights import NEXT, Model, Write, copy_of, leftovers, make_template, open_at, rows_of
from tests.helpers.hudi_view import find_disagreements
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", region="string", ts="int64", v="string")
PAYLOAD = "hoodie.datasource.write.payload.class"
#: More tests of archives are below.
COPY_ON_WRITE = [
    name for name in (*names("hudi_v6"), *names("hudi_v8_v9")) if "mor" not in name and "archived" not in name
]
NIGHTLY_MODES = [pytest.param(mode, marks=pytest.mark.nightly) for mode in Mode if mode is not Mode.AFTER]
WAYS = [(6, 8, 9, 8, 6), (6, 9, 6, 8, 6), (9, 6, 9, 8, 9), (8, 6, 9, 6, 8)]


def batch(ids: range, ts: int) -> pa.Table:
    rows = [{"id": n, "region": f"r{n % 2}", "ts": ts, "v": f"{n}@{ts}"} for n in ids]
    return pa.Table.from_pylist(rows, SCHEMA)


def move(table: lakeformat.Table, to: int) -> Any:
    return (table.upgrade if to > table.config.version else table.downgrade)(to)


def states(table: lakeformat.Table) -> dict[str, list[dict[str, Any]]]:
    times = [instant.time for instant in table.snapshot().timeline.commits]
    return {time: hudi_rs.rows_by_key(table.to_arrow(as_of=time, meta_columns=True)) for time in times}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_upgrade_and_downgrade_keep_rows_and_history(way: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakeformat.create(
        path,
        SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        **{"hoodie.write.table.version": way[0], PAYLOAD: "PartialUpdateAvroPayload"},
    )
    first = dict(table.config.values)
    table.insert(batch(range(8), 1))
    table.upsert(batch(range(4, 12), 2))
    table.insert_overwrite(batch(range(0, 6, 2), 3))
    table.cluster(by=["v"])
    reports = [entry.operation for entry in table.history()]
    for number, to in enumerate(way[1:]):
        before = states(table)
        result = move(table, to)
        assert (result.before, result.after) == (way[number], to)
        assert states(lakeformat.open(path)) == before
        hudi_rs.assert_same_rows(lakeformat.open(path))
        assert [entry.operation for entry in table.history()] == reports
        table.upsert(batch(range(5, 14), 10 + number))  # Settings made long before are still valid.
        reports.insert(0, "upsert")
        assert lakeformat.open(path).config.merge_mode == "PartialUpdateAvroPayload"
        assert leftover_instants(path) == []
    kept = {key: text for key, text in table.config.values.items() if key in first}
    order = {"hoodie.table.ordering.fields", "hoodie.archivelog.folder"}
    assert {k: v for k, v in kept.items() if k not in order} == {k: v for k, v in first.items() if k not in order}


@pytest.mark.parametrize("way", [(6, 8), (6, 9), (9, 6)], ids=str)
def test_empty_table_is_upgraded(way: tuple[int, int], tmp_path: Path) -> None:
    options = {"hoodie.write.table.version": way[0]}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="region", **options)
    assert move(table, way[1]).after == way[1]
    table.upsert(batch(range(4), 1))
    assert hudi_rs.assert_same_rows(lakeformat.open(tmp_path / "t"))


def leftover_instants(path: Path) -> list[str]:
    """Return files of the timeline layout that the table no longer uses."""
    is_new = lakeformat.open(path).config.version > 6
    return [file.name for file in (path / ".hoodie").glob("[0-9]*" if is_new else "timeline/*")]


@pytest.mark.parametrize("name", COPY_ON_WRITE)
def test_tables_of_hudi_are_upgraded_and_downgraded(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table = lakeformat.open(path)
    rows = hudi_rs.rows_by_key(table.to_arrow(meta_columns=True))
    version, had = table.config.version, table.config.has_metadata_table
    for to in [9, 8, 6] if version == 6 else [6, 9]:
        move(table, to)
        assert hudi_rs.assert_same_rows(lakeformat.open(path)) == rows
        assert table.config.has_metadata_table is had
        assert find_disagreements(table) == []
    table.upsert(lakeformat.open(path).to_arrow(meta_columns=False).slice(0, 1))
    hudi_rs.assert_same_rows(table)


@pytest.fixture(scope="module", params=["6", "9"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    return make_template(tmp_path_factory.mktemp(f"v{request.param}"), version=request.param)


def other_version(storage: Storage) -> None:
    table = open_at(storage, "mover")
    move(table, 6 if table.config.version == 9 else 9)


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
def test_upgrade_that_dies_at_any_call_leaves_one_version(
    mode: Mode, template: tuple[Path, Model], tmp_path: Path
) -> None:
    """The table has the old or the new version, with the same rows. The next writer can write and move it."""
    moved_whatever_dies(mode, template, tmp_path)


@pytest.mark.parametrize("mode", [pytest.param(Mode.AFTER, marks=pytest.mark.slow), *NIGHTLY_MODES])
@pytest.mark.parametrize("version", ["6", "9"])
def test_upgrade_of_a_table_with_log_files_that_dies_leaves_one_version(
    mode: Mode, version: str, tmp_path: Path
) -> None:
    """The compaction before the upgrade is a commit of its own. If it dies, its plan stays pending."""
    moved_whatever_dies(mode, make_template(tmp_path, version=version, table_type="MERGE_ON_READ"), tmp_path)


def moved_whatever_dies(mode: Mode, template: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = template
    recording = FaultyStorage(copy_of(path, tmp_path))
    other_version(recording)
    assert rows_of(recording.inner) == before
    after = NEXT.applied(before)
    for number in calls_to_fail(recording.calls, Mode.AFTER):
        storage = copy_of(path, tmp_path)
        with pytest.raises(Crash):
            other_version(FaultyStorage(storage, Fault(at(number), mode)))
        assert rows_of(storage) == before, recording.calls[number]
        version = lakeformat.Table(storage).config.version
        if number % 2:
            NEXT.run(open_at(storage, "next"))
            assert rows_of(storage) == after, recording.calls[number]
        move(open_at(storage, "again"), version)
        other_version(storage)
        assert lakeformat.Table(storage).config.version == 15 - version
        assert rows_of(storage) == (after if number % 2 else before), recording.calls[number]
        assert leftovers(storage) == leftover_instants(Path(storage.root)) == [], recording.calls[number]
    hudi_rs.assert_same_rows(open_at(storage, "reader"))


class _Beneath:
    """A callback that moves the table to another version before one of the reader's calls."""

    def __init__(self, number: int, storage: Storage) -> None:
        self.left, self.storage = number, storage

    def __call__(self, _: object) -> None:
        self.left -= 1
        if self.left == -1:
            other_version(self.storage)


def test_reader_during_an_upgrade_sees_one_version(template: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = template
    reading = FaultyStorage(copy_of(path, tmp_path))
    assert rows_of(reading) == before
    for number in range(len(reading.calls)):
        storage = copy_of(path, tmp_path)
        beneath = _Beneath(number, storage)
        assert rows_of(FaultyStorage(storage, meanwhile=beneath)) == before, reading.calls[number]
        assert beneath.left < 0
        stale = TimelineStore(storage)
        config = stale.config()
        other_version(storage)
        snapshot = load_snapshot(stale, config=config)
        assert len(snapshot.timeline.commits) == 2


def test_writer_that_planned_before_an_upgrade_plans_again(template: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = template
    storage = copy_of(path, tmp_path)
    beneath = once(lambda call: call.name == "lock", lambda _: other_version(storage))
    versions = TimelineStore(storage).config().version
    NEXT.run(open_at(FaultyStorage(storage, meanwhile=beneath), "writer"))
    assert rows_of(storage) == NEXT.applied(before)
    assert TimelineStore(storage).config().version != versions


def check_refused(table: lakeformat.Table, to: int, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        move(table, to)
    assert "\n" not in str(caught.value)


def test_unsupported_upgrades_are_refused(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", ordering="ts")
    table.bulk_insert(batch(range(4), 1))
    table.bulk_insert(batch(range(4, 8), 1))
    check_refused(table, 7, InvalidInputError, "table version 7 is not one of 6, 8, 9")
    with pytest.raises(InvalidInputError, match=r"is of table version 6: to 9 it is upgrade\(9\), not downgrade\(9\)"):
        table.downgrade(9)
    assert table.upgrade(6).skipped == "the table is of version 6 already"
    planned = table.schedule_clustering(by="v")
    check_refused(table, 9, WriteConflictError, f"{planned}.replacecommit.requested is pending")
    table.cancel_clustering(str(planned))
    assert move(table, 9).files == 9  # Three files each of two commits and of the rollback of the plan.
    planned = table.schedule_clustering(by="v")
    check_refused(table, 6, WriteConflictError, f"{planned}.clustering.requested is pending")
    table.run_clustering()
    move(table, 6)
    assert len(table.to_arrow()) == 8


MERGE_ON_READ = [
    "hudi_mor_v6/mor6_avro_event_time",
    "hudi_mor_v6/mor6_compaction_pending",
    "hudi_mor_v6/mor6_log_only",
    "hudi_mor_v6/mor6_partitioned_deletes",
    "hudi_mor_v6/mor6_rollback",
    "hudi_v8_v9/v8_mor_compacted_partitioned",
    "hudi_v8_v9/v9_mor_compaction_pending",
    "hudi_v8_v9/v9_mor_log_only",
    "hudi_v8_v9/v9_mor_parquet_logs",
    "hudi_upgraded/up_v6_v9_mor_pending",
]


@pytest.mark.parametrize("name", MERGE_ON_READ)
def test_table_with_log_files_is_compacted_then_upgraded(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    rows, past = all_rows(table), {time: all_rows(table, time) for time in states(table)}
    for to in (6, 9) if table.config.version > 6 else (9, 6):
        move(table, to)
        assert all_rows(table) == all_rows_by_hudi_rs(table) == rows
        assert {time: all_rows(table, time) for time in past} == past
        assert table.snapshot().timeline.pending == ()
        # Older log files belong to the older slices, new ones to the new slices.
        appended = table.upsert(table.to_arrow(meta_columns=False).slice(0, 1)).instant_time
        rows = past[appended] = all_rows(table)
        assert all_rows_by_hudi_rs(table) == rows


class _Busy:
    """A writer that appends to the table whenever its compaction has completed."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.edition = storage, 0

    def __call__(self, _: object) -> None:
        self.edition += 1
        Write("upsert", (0, 1, 2), f"busy {self.edition}").run(open_at(self.storage, f"busy {self.edition}"))


@pytest.mark.parametrize("version", ["6", "9"])
def test_table_with_continuous_appends_is_not_upgraded(version: str, tmp_path: Path) -> None:
    path, _ = make_template(tmp_path, version=version, table_type="MERGE_ON_READ")
    storage = LocalStorage(str(path))
    table, busy = open_at(storage, "mover"), _Busy(storage)

    def compact_while_others_write() -> None:
        table.compact()
        busy(None)

    session = VersionSession(table.context, table.options, compact_while_others_write)
    with pytest.raises(WriteConflictError, match=r"file slice\(s\) with log files, .* let its writers rest"):
        session.move(15 - int(version), is_upgrade=version == "6")
    assert table.config.version == int(version)
    assert rows_of(storage)[0] == ("r0", f"busy {busy.edition}")


def test_merge_on_read_table_moves_between_8_and_9(tmp_path: Path) -> None:
    for name in names("hudi_v8_v9"):
        if "_mor_" in name and "partial" not in name and "pending" not in name:
            table = lakeformat.open(unpack(name, tmp_path))
            rows = hudi_rs.rows_by_key(table.to_arrow(meta_columns=True))
            for to in (17 - table.config.version, table.config.version):
                move(table, to)
                assert hudi_rs.rows_by_key(table.to_arrow(meta_columns=True)) == rows, name


def commits_in(store: TimelineStore) -> dict[str, Any]:
    """Return instant -> metadata of the archived commits."""
    store.config()
    archive = store.read_archived()
    return {instant.time: said for instant, said in archive.commits(archive.completed_in(""))}


ARCHIVED = ["hudi_changes/v6_cow_archived", "hudi_life/v6_by_1_2_cow_archived", "hudi_v8_v9/v9_cow_archived_cleaned"]


@pytest.mark.parametrize("name", [*ARCHIVED, "hudi_life/v9_cow_lsm_levels"])
def test_an_archive_moves_with_the_table(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table, store = lakeformat.open(path), TimelineStore(LocalStorage(str(path)))
    archived = commits_in(store)
    assert archived
    rows = hudi_rs.rows_by_key(table.to_arrow(meta_columns=True))
    plans = [file.read_bytes() for file in sorted(path.rglob("*.clean.requested"))]
    for _ in range(3):
        other_version(table.context.storage)
        assert hudi_rs.assert_same_rows(table) == rows
        assert commits_in(store) == archived
        assert [file.read_bytes() for file in sorted(path.rglob("*.clean.requested"))] == plans
        if table.config.version == 6:  # Hudi 0.15 archives the plan of both.
            carried = [file.read_bytes() for file in sorted(path.rglob("*.clean.inflight"))]
            plan = [decode_clean_plan(data, name="requested") for data in plans]
            assert [decode_clean_plan(data, name="inflight") for data in carried] == plan
