"""Dedupe: of the rows with one key in one partition the newest stays, and nothing else changes."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, Table, UnsupportedTableError, WriteConflictError
from lakeformat.services.doctor.findings import Kind
from tests.helpers import hudi_rs

KINDS = ("COPY_ON_WRITE", "MERGE_ON_READ")
COLUMNS = {"id": "int64", "p": "string", "ts": "int64", "v": "string"}
NEWEST = """
select * exclude (place) from (
    select *, row_number() over (partition by p, id order by {order}) place from rows
) where place = 1 order by p, id
"""


def make_table(folder: Path, version: int = 6, kind: str = "COPY_ON_WRITE", **options: Any) -> Table:
    options = {"hoodie.write.table.version": version, "table_type": kind, **options}
    return lakeformat.create(folder / "t", COLUMNS, record_key="id", partition_by="p", **options)


def batch(rng: random.Random, count: int, name: str) -> list[dict[str, Any]]:
    return [
        {"id": rng.randrange(30), "p": rng.choice("ab"), "ts": rng.choice([None, 1, 2, 3]), "v": f"{name}-{at}"}
        for at in range(count)
    ]


def fill(table: Table, rng: random.Random) -> None:
    """Write rows with repeated keys, in one file group and in several, and with log files if the table has them."""
    for at in range(3):
        table.bulk_insert(batch(rng, 20, f"bulk{at}"))
        table.insert(batch(rng, 10, f"insert{at}"))
    once = {(row["id"], row["p"]): row for row in batch(rng, 8, "upsert")}
    table.upsert(list(once.values()))


@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "version", [6, pytest.param(8, marks=pytest.mark.slow), pytest.param(9, marks=pytest.mark.slow)]
)
def test_dedupe_keeps_the_newest_row_of_each_key(version: int, kind: str, ordering: str | None, tmp_path: Path) -> None:
    rng = random.Random(version * 7 + len(kind))
    table = make_table(tmp_path, version, kind, **({"ordering": ordering} if ordering else {}))
    fill(table, rng)
    rows = table.to_arrow(meta_columns=True)
    by = "ts desc nulls last, _hoodie_commit_time desc" if ordering else "_hoodie_commit_time desc"
    newest = duckdb.sql(NEWEST.format(order=by)).to_arrow_table()
    would = table.dedupe(dry_run=True)
    assert table.to_arrow(meta_columns=True).equals(rows)
    assert (would.instant_time, would.rows) == ("", rows.num_rows - newest.num_rows)
    done = table.dedupe()
    assert done.duplicates.equals(would.duplicates)
    kept = table.to_arrow(meta_columns=True)
    assert sorted(zip(kept["p"].to_pylist(), kept["id"].to_pylist(), strict=True)) == list(
        zip(newest["p"].to_pylist(), newest["id"].to_pylist(), strict=True)
    )
    assert ranks(kept, ordering) == ranks(newest, ordering)
    before = {tuple(row.values()) for row in rows.drop("_hoodie_file_name").to_pylist()}
    assert {tuple(row.values()) for row in kept.drop("_hoodie_file_name").to_pylist()} <= before
    assert not table.check()
    assert table.dedupe(dry_run=True).rows == 0
    assert table.history(1)[0].operation == "dedupe"
    assert table.history(1)[0].report is not None
    again = table.upsert([{"id": row["id"], "p": row["p"], "ts": 9, "v": "new"} for row in kept.to_pylist()])
    assert (again.rows.updated, again.rows.inserted, table.count()) == (kept.num_rows, 0, kept.num_rows)


def ranks(rows: pa.Table, ordering: str | None) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the values that decide, by key. Without an ordering field, the rows of one commit have the same age."""
    names = ["_hoodie_commit_time", *([ordering] if ordering else [])]
    return {(row["p"], row["id"]): tuple(row[name] for name in names) for row in rows.to_pylist()}


def test_hudi_rs_reads_the_rows_after_dedupe(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, random.Random(1))
    table.dedupe()
    theirs = hudi_rs.read(tmp_path / "t")
    assert theirs is not None
    assert sorted(theirs["v"].to_pylist()) == sorted(table.to_arrow()["v"].to_pylist())


def test_dedupe_plan_names_only_duplicate_rows(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    first = table.insert([{"id": at, "p": "a", "ts": 1, "v": "x"} for at in range(3)]).instant_time
    second = table.insert([{"id": 1, "p": "a", "ts": 1, "v": "y"}, {"id": 1, "p": "b", "ts": 1, "v": "y"}]).instant_time
    listed = table.dedupe(dry_run=True).duplicates.drop("path").to_pylist()
    assert sorted(listed, key=lambda row: row["commit_time"]) == [
        {"partition_path": "a", "record_key": "1", "commit_time": first, "kept": False},
        {"partition_path": "a", "record_key": "1", "commit_time": second, "kept": True},
    ]
    assert str(table.dedupe(dry_run=True)) == "dedupe (dry run): 1 surplus rows of 1 keys"
    assert table.dedupe().rows == 1
    assert sorted((row["id"], row["p"], row["v"]) for row in table.to_arrow().to_pylist()) == [
        (0, "a", "x"), (1, "a", "y"), (1, "b", "y"), (2, "a", "x"),
    ]  # fmt: skip


def test_dedupe_keeps_files_without_a_duplicate(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.insert([{"id": at, "p": "ab"[at % 2], "ts": 1, "v": "x"} for at in range(4)])
    kept = {file for file in table.files()["path"].to_pylist() if file.startswith("b/")}
    table.bulk_insert([{"id": 0, "p": "a", "ts": 1, "v": "y"}])
    table.dedupe()
    assert kept <= set(table.files()["path"].to_pylist())


def test_dedupe_without_duplicates_writes_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert str(table.dedupe()) == "dedupe: no key comes twice"
    table.upsert([{"id": 1, "p": "a", "ts": 1, "v": "x"}])
    assert table.dedupe().instant_time == ""
    assert len(table.history()) == 1


def test_dedupe_can_be_rolled_back(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, random.Random(3))
    before = sorted(table.to_arrow()["v"].to_pylist())
    table.dedupe()
    table.rollback()
    assert sorted(table.to_arrow()["v"].to_pylist()) == before


def test_a_table_without_a_key_has_no_duplicates(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"v": "string"})
    table.insert([{"v": "x"}, {"v": "x"}])
    with pytest.raises(InvalidInputError, match="no record key"):
        table.dedupe(dry_run=True)


def test_a_table_of_buckets_is_refused_and_the_keys_are_named(tmp_path: Path) -> None:
    table = make_table(tmp_path, **{"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2})
    for _ in range(2):
        table.insert([{"id": 7, "p": "a", "ts": 1, "v": "x"}])
    assert table.count() == 2
    with pytest.raises(UnsupportedTableError, match=r"table of buckets.*'7'"):
        table.dedupe(dry_run=True)


def test_dedupe_beside_a_pending_plan_is_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, random.Random(4))
    table.schedule_clustering("id")
    before = table.count()
    with pytest.raises(WriteConflictError, match="pending"):
        table.dedupe()
    assert table.count() == before


def test_check_reports_duplicates_apart_from_damage_with_advice(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.insert([{"id": at, "p": "a", "ts": 1, "v": "x"} for at in range(3)])
    table.insert([{"id": at, "p": "a", "ts": 1, "v": "y"} for at in (1, 2)])
    (found,) = table.check()
    assert (found.kind, found.rows, found.kind.is_duplicate, table.check().is_damage) == (
        Kind.KEY_TWICE,
        2,
        True,
        False,
    )
    assert found.cure.startswith("key '1' and 1 more: lakeformat dedupe")
    table.bulk_insert([{"id": 0, "p": "a", "ts": 1, "v": "z"}])
    assert {each.kind for each in table.check()} == {Kind.KEY_TWICE, Kind.KEY_IN_TWO_GROUPS}
    base = tmp_path / "t" / table.files()["path"][0].as_py()
    base.write_bytes(base.read_bytes()[:-9])
    assert table.check().is_damage


# --- upserts that give a key a second row ---------------------------------------------------------------


def moved(table: Table, caplog: pytest.LogCaptureFixture, *batches: list[tuple[int, str]]) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lakeformat.write"):
        for rows in batches:
            table.upsert([{"id": id_, "p": p, "ts": 1, "v": "x"} for id_, p in rows])
    return [record.getMessage() for record in caplog.records]


def test_upsert_into_another_partition_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(tmp_path)
    (said,) = moved(table, caplog, [(1, "a"), (2, "b")], [(3, "a")], [(1, "b")], [(2, "a")])
    assert "'1' into partition 'b', and partition 'a' has a row" in said
    assert "GLOBAL_BLOOM" in said


def test_batch_with_a_key_in_two_partitions_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (said,) = moved(make_table(tmp_path), caplog, [(1, "a"), (2, "a"), (2, "b")])
    assert "'2' into partition 'b', and partition 'a' has a row" in said


def test_a_global_index_moves_rows_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(tmp_path, **{"hoodie.index.type": "GLOBAL_BLOOM"})
    assert moved(table, caplog, [(1, "a")], [(1, "b")]) == []
    assert table.count() == 1
