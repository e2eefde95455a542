"""delete_partition: one commit removes whole partitions and writes no data. The oracle is a filter on the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError, LakeformatError, Table, WriteConflictError
from lakeformat.config.resolve import resolve
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.operation import Operation
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.write.intake import plan_job
from lakeformat.write.session import WriteSession
from tests.helpers import hudi_rs
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", month="int32", place="string")
ROWS = pa.table({"id": range(48), "month": [n % 12 + 1 for n in range(48)], "place": ["a*", "ab"] * 24}, schema=SCHEMA)
TO_DELETE = "hoodie.datasource.write.partitions.to.delete"


def monthly(folder: Path, rows: pa.Table = ROWS, **options: Any) -> Table:
    settings = {"record_key": "id", "partition_by": "month", "hive_style": True, **options}
    table = lakeformat.create(folder / "t", SCHEMA, **settings)
    table.bulk_insert(rows)
    return table


def months(table: Table) -> set[int]:
    """Return the months in the table. Check that hudi-rs reads the same rows."""
    return {row["month"] for row in hudi_rs.assert_same_rows(table)}


@pytest.mark.parametrize(
    ("wanted", "gone"),
    [
        ("month=1", {1}),
        (["month=1", "month=12"], {1, 12}),
        ("month=1*", {1, 10, 11, 12}),
        (["*2", "month=2"], {2, 12}),
        ("*", set(range(1, 13))),
        (["month=3", "month=99"], {3}),
    ],
)
def test_named_partitions_are_deleted_and_others_kept(wanted: str | list[str], gone: set[int], tmp_path: Path) -> None:
    table = monthly(tmp_path)
    before = {file.path for file in table.snapshot().files}
    table.delete_partitions(wanted)
    assert months(table) == set(range(1, 13)) - gone
    assert {row["id"] for row in table.to_arrow().to_pylist()} == {n for n in range(48) if n % 12 + 1 not in gone}
    assert all((tmp_path / "t" / path).exists() for path in before)


def test_delete_partition_commit_is_hudis_and_writes_no_file(tmp_path: Path) -> None:
    table = monthly(tmp_path)
    groups = {p: sorted(f.name.file_id for f in files) for p, files in table.snapshot().by_partition.items()}
    result = table.delete_partitions(["month=4", "month=5"])
    document = json.loads((tmp_path / "t" / ".hoodie" / f"{result.instant_time}.replacecommit").read_text())
    assert document["operationType"] == "DELETE_PARTITION"
    assert document["partitionToWriteStats"] == {}
    replaced = {partition: sorted(ids) for partition, ids in document["partitionToReplaceFileIds"].items()}
    assert replaced == {partition: groups[partition] for partition in ("month=4", "month=5")}
    assert document["extraMetadata"]["schema"]
    assert table.history()[0].operation == result.operation == "delete_partition"
    assert table.schema == SCHEMA


def test_deleted_partition_takes_new_rows_and_time_travel_shows_the_old(tmp_path: Path) -> None:
    table = monthly(tmp_path)
    before = table.history()[0].instant_time
    table.delete_partitions("month=1")
    table.upsert(pa.table({"id": [0, 900], "month": [1, 1], "place": ["new", "new"]}, schema=SCHEMA))
    rows = hudi_rs.assert_same_rows(table)
    assert {row["id"] for row in rows if row["month"] == 1} == {0, 900}
    assert hudi_rs.rows_by_key(table.to_arrow(as_of=before, meta_columns=True)) == hudi_rs.assert_same_rows(
        table, before
    )
    assert len(table.to_arrow(as_of=before, meta_columns=True)) == 48


def test_partitions_of_the_rows_are_deleted_without_names(tmp_path: Path) -> None:
    table = monthly(tmp_path)
    table.write(pa.table({"month": pa.array([2, 7, 2], pa.int32())}), Operation.DELETE_PARTITION)
    assert months(table) == set(range(1, 13)) - {2, 7}


def test_asterisk_in_a_row_value_is_literal(tmp_path: Path) -> None:
    table = monthly(tmp_path, partition_by="place", hive_style=False)
    table.write(pa.table({"place": ["a*"]}), Operation.DELETE_PARTITION)
    assert set(table.to_arrow()["place"].to_pylist()) == {"ab"}


def test_several_partition_fields_and_escaped_values(tmp_path: Path) -> None:
    table = monthly(tmp_path, partition_by=["month", "place"], url_encode=True)
    table.delete_partitions(["month=1/*", "*/place=a%2A"])
    left = {(row["month"], row["place"]) for row in hudi_rs.assert_same_rows(table)}
    assert left == {(n % 12 + 1, "ab") for n in range(48) if n % 2 and n % 12}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (["month=99"], "no partition 'month=99'"),
        (["1"], "no partition '1'"),
        (["month=1", "../t"], "segment . or .."),
        (["/month=1"], "starts or ends with /"),
        ([".hoodie/*"], "own folder"),
        ([""], "starts or ends with /"),
        ([], "no partition is named"),
    ],
)
def test_partition_names_without_a_match_are_refused(wanted: list[str], words: str, tmp_path: Path) -> None:
    table = monthly(tmp_path)
    with pytest.raises(InvalidInputError, match=words):
        table.delete_partitions(wanted)
    assert len(table.history()) == 1
    assert not table.context.store.load().pending
    assert len(hudi_rs.assert_same_rows(table)) == 48


def test_no_rows_and_no_names_are_refused(tmp_path: Path) -> None:
    table = monthly(tmp_path)
    with pytest.raises(InvalidInputError, match="no rows and no partitions"):
        table.write(ROWS.slice(0, 0), Operation.DELETE_PARTITION)
    assert len(table.history()) == 1


def test_a_table_in_one_folder_is_refused(tmp_path: Path) -> None:
    table = monthly(tmp_path, partition_by=(), hive_style=False)
    with pytest.raises(InvalidOptionError, match="has no partitions"):
        table.delete_partitions("*")
    assert len(table.to_arrow()) == 48


def test_rows_inserted_into_a_partition_meanwhile_are_kept(tmp_path: Path) -> None:
    table = monthly(tmp_path)
    snapshot = table.snapshot()
    options = resolve({TO_DELETE: "month=1", "operation": "delete_partition"})
    job = plan_job(table.context.store, snapshot, options, SCHEMA, table.context.ids)
    session = WriteSession(table.context, job)
    with session.transaction.hold_lock():
        commit = session.transaction.begin(snapshot.timeline.commit_times, claim_kind="heartbeat")
    other = pa.table({"id": [1000], "month": [1], "place": ["late"]}, schema=SCHEMA)
    lakeformat.open(tmp_path / "t").upsert(other)
    commit = session.transaction.start(commit, CommitMetadata("DELETE_PARTITION", {}))
    outcome = Outcome(schema=SCHEMA, written=(), snapshot=snapshot, overwritten=frozenset({"month=1"}))
    with session.transaction.hold_lock(), pytest.raises(WriteConflictError):
        session.transaction.publish(commit, outcome)
    assert 1000 in table.to_arrow()["id"].to_pylist()


def test_delete_partition_with_mode_overwrite_is_refused(tmp_path: Path) -> None:
    table = monthly(tmp_path)
    options = resolve({TO_DELETE: "month=1", "operation": "delete_partition"})
    with pytest.raises(LakeformatError, match="contradict each other"):
        plan_job(table.context.store, table.snapshot(), options, SCHEMA, table.context.ids, overwrite=True)
