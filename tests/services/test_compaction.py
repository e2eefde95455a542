"""Compactions of tables that Hudi made: our reader and hudi-rs read the same rows, and no log file is left."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import fastavro
import pytest

import lakeformat
from lakeformat.codec.timeline_files.service_plans import decode_compaction_plan, encode_compaction_plan
from lakeformat.errors import CorruptTableError, InvalidInputError, WriteConflictError
from lakeformat.model.instant import Action, State
from tests.helpers import hudi_rs
from tests.helpers.fixture_tables import FIXTURES, names, read_expectations, unpack

COLLECTIONS = ("hudi_mor_v6", "hudi_v8_v9", "hudi_upgraded", "hudi_merge_rules")
TABLES = [name for collection in COLLECTIONS for name in names(collection) if "_mor" in name or "mor6" in name]
#: hudi-rs does not read several ordering fields.
NOT_BY_HUDI_RS = frozenset({"hudi_merge_rules/v9_mor_debezium_mysql", "hudi_merge_rules/v9_mor_two_ordering_fields"})
READ_OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}

PENDING = "hudi_mor_v6/mor6_compaction_pending"
PENDING_9 = "hudi_v8_v9/v9_mor_compaction_pending"
PARTITIONED = "hudi_mor_v6/mor6_partitioned_deletes"


def read_rows(table: lakeformat.Table, as_of: str | None = None) -> list[str]:
    """Return all rows with their meta columns except the file name."""
    return rows_as_text(table.to_arrow(as_of=as_of, meta_columns=True))


def rows_as_text(rows: Any) -> list[str]:
    listed = rows.to_pylist(maps_as_pydicts="strict")
    return sorted(repr({name: row[name] for name in sorted(row) if name != "_hoodie_file_name"}) for row in listed)


def pending(table: lakeformat.Table) -> list[str]:
    return [instant.time for instant in table.snapshot().timeline.pending if instant.action is Action.COMPACTION]


@pytest.mark.parametrize("name", TABLES)
def test_compaction_changes_no_row(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    table = lakeformat.open(folder)
    before = read_rows(table)
    asked = read_expectations(name).get("as_of", {})
    past = {instant: read_rows(table, instant) for instant, rows in asked.items() if not isinstance(rows, str)}
    assert table.snapshot().live.has_logs
    result = table.compact()
    assert not result.skipped
    assert not table.snapshot().live.has_logs
    assert read_rows(table) == before
    assert read_rows(lakeformat.open(folder, **READ_OPTIMIZED)) == before
    assert {instant: read_rows(table, instant) for instant in past} == past
    if name not in NOT_BY_HUDI_RS:
        assert rows_as_text(hudi_rs.read(folder)) == before
    assert table.compact().skipped


def committed(table: lakeformat.Table, instant_time: str) -> dict[str, Any]:
    store = table.context.store
    instant = store.load().find(instant_time)
    assert instant is not None
    assert instant.state is State.COMPLETED
    data = store.read(instant)
    found = json.loads(data) if data[:1] == b"{" else next(iter(fastavro.reader(io.BytesIO(data))))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        ("hudi_mor_v6/mor6_compacted", frozenset()),
        # 1.1.1 does not count the bytes of the files.
        ("hudi_changes/v9_mor_compaction", frozenset({"totalLogSizeCompacted", "numUpdates"})),
    ],
)
def test_compaction_commit_equals_hudis(name: str, apart: frozenset[str], tmp_path: Path) -> None:
    """We run Hudi's own compaction again, from its plan: all statistics agree except names, sizes and times."""
    folder = unpack(name, tmp_path)
    (requested,) = folder.rglob("*.compaction.requested")
    time = requested.name.partition(".")[0]
    (completed,) = folder.rglob(f"{time}*.commit")
    theirs = committed(lakeformat.open(folder), time)
    completed.unlink()
    (base,) = folder.glob(f"*_{time}.parquet")
    base.unlink()
    (requested.parent / f"{time}.compaction.inflight").unlink()
    copy = folder.rename(tmp_path / "run_by_us")  # Commits are cached by path.
    table = lakeformat.open(copy)
    table.run_compaction(time)
    ours = committed(table, time)
    assert (ours["operationType"], ours["compacted"]) == (theirs["operationType"], theirs["compacted"])
    assert ours["extraMetadata"]["schema"] == theirs["extraMetadata"]["schema"]
    apart |= {"path", "fileSizeInBytes", "totalWriteBytes", "runtimeStats", "totalLogReadTimeMs"}
    (our_stat,), (their_stat,) = ours["partitionToWriteStats"][""], theirs["partitionToWriteStats"][""]
    assert {key: our_stat.get(key) for key in their_stat if key not in apart} == {
        key: value for key, value in their_stat.items() if key not in apart
    }


@pytest.mark.parametrize(("name", "layout"), [(PENDING, 1), (PENDING_9, 2)])
def test_compaction_plan_round_trips_in_hudis_schema(name: str, layout: int) -> None:
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        (path,) = (one for one in archive.namelist() if one.endswith("compaction.requested"))
        theirs = archive.read(path)
    plan = decode_compaction_plan(theirs, name=path)
    ours = encode_compaction_plan(plan, missing_partitions=layout == 2)
    assert decode_compaction_plan(ours, name=path) == plan
    records = [fastavro.reader(io.BytesIO(data)) for data in (ours, theirs)]
    assert [field["name"] for field in records[0].writer_schema["fields"]] == [  # type: ignore[index, call-overload]
        field["name"]
        for field in records[1].writer_schema["fields"]  # type: ignore[index, call-overload]
    ]
    assert next(records[0]) == next(records[1])


@pytest.mark.parametrize("name", [PENDING, PENDING_9])
def test_plan_of_hudi_is_run_and_later_log_files_are_kept(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    (time,) = pending(table)
    before = read_rows(table)
    assert table.run_compaction().instant_time == time
    assert read_rows(table) == before
    assert table.snapshot().live.has_logs
    assert not table.snapshot().timeline.pending
    assert table.run_compaction().skipped == "no compaction is pending"


def test_pending_plan_can_be_cancelled(tmp_path: Path) -> None:
    table = lakeformat.open(unpack(PARTITIONED, tmp_path))
    before = read_rows(table)
    time = table.schedule_compaction()
    assert time is not None
    assert pending(table) == [time]
    assert table.schedule_compaction() is None
    assert read_rows(table) == before
    with pytest.raises(InvalidInputError, match=f"no compaction 20200101000000000 is pending; pending are {time}"):
        table.cancel_compaction("20200101000000000")
    table.cancel_compaction(time)
    assert not table.snapshot().timeline.pending
    assert read_rows(table) == before
    with pytest.raises(InvalidInputError, match="none is pending"):
        table.run_compaction(time)


def test_a_plan_that_log_files_are_named_after_cannot_be_cancelled(tmp_path: Path) -> None:
    table = lakeformat.open(unpack(PENDING, tmp_path))
    (time,) = pending(table)
    with pytest.raises(WriteConflictError, match=f"a file slice that compaction {time} has opened; run it"):
        table.cancel_compaction(time)
    assert pending(table) == [time]


def test_in_layout_2_any_plan_can_be_cancelled(tmp_path: Path) -> None:
    table = lakeformat.open(unpack(PENDING_9, tmp_path))
    before = read_rows(table)
    (time,) = pending(table)
    table.cancel_compaction(time)
    assert read_rows(table) == before
    assert not table.compact().skipped
    assert read_rows(table) == before


@pytest.mark.parametrize("suffix", [".parquet", ".log.1_*"])
def test_plan_that_names_missing_files_is_refused(suffix: str, tmp_path: Path) -> None:
    """The error is one line, the plan stays, and nothing is published."""
    source = unpack(PARTITIONED, tmp_path)
    table = lakeformat.open(source)
    time = table.schedule_compaction()
    plan = next(iter(table.context.store.load().pending))
    decoded = table.context.store.read_compaction_plan(plan)
    assert decoded is not None
    one = decoded.operations[0]
    gone = one.base_name if suffix == ".parquet" else one.log_names[0]
    (source / one.partition_path / gone).unlink()
    with pytest.raises(CorruptTableError, match=gone.replace(".", r"\.")) as error:
        table.run_compaction()
    assert "\n" not in str(error.value)
    assert [instant.time for instant in table.context.store.load().pending] == [time]


def test_truncated_plan_is_refused_and_can_be_cancelled(tmp_path: Path) -> None:
    folder = unpack(PARTITIONED, tmp_path)
    table = lakeformat.open(folder)
    before = read_rows(table)
    time = table.schedule_compaction()
    assert time is not None
    path = folder / ".hoodie" / f"{time}.compaction.requested"
    path.write_bytes(path.read_bytes()[:-20])
    for act in (table.run_compaction, table.compact):
        with pytest.raises(CorruptTableError, match=f"{time}.compaction.requested") as error:
            act()
        assert "\n" not in str(error.value)
    assert read_rows(table) == before
    table.cancel_compaction(time)
    assert not table.compact().skipped
    assert read_rows(table) == before


def test_tables_without_log_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is copy-on-write: it has no log files to compact"):
        lakeformat.open(unpack("hudi_v6/cow_part_hive", tmp_path)).compact()
