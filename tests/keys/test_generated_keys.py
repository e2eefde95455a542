"""Tables whose rows have no key: each row gets one when it is written. The oracles are a bag of rows and hudi-rs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidOptionError, Table, UnsupportedTableError
from lakeformat.config.resolve import resolve
from lakeformat.model.operation import Operation
from lakeformat.storage import MemoryStorage, SystemClock
from lakeformat.write.intake import create_table
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.tables import a_schema

SCHEMA = a_schema(p="string", v="int64")
KEY = re.compile(r"(\d{17})_(\d+)_(\d+)")


def rows(count: int, *partitions: str, start: int = 0) -> pa.Table:
    values = range(start, start + count)
    return pa.table({"p": [partitions[n % len(partitions)] for n in values], "v": values}, schema=SCHEMA)


def new_table(folder: Path, **options: Any) -> Table:
    return lakeformat.create(folder / "t", SCHEMA, **{"partition_by": "p", **options})


def bag(table: Table) -> Counter[tuple[str, int]]:
    """Count the rows. Check that hudi-rs agrees, and that every key is unique and begins with its commit."""
    read = hudi_rs.assert_same_rows(table)
    keys = [KEY.fullmatch(row["_hoodie_record_key"]) for row in read]
    assert all(key and key[1] == row["_hoodie_commit_time"] for key, row in zip(keys, read, strict=True))
    assert len({key[0] for key in keys if key}) == len(read)
    return Counter((row["p"], row["v"]) for row in read)


@pytest.mark.parametrize("partition_by", [(), "p", ("p", "v")])
def test_equal_rows_get_different_keys_from_every_operation(partition_by: Any, tmp_path: Path) -> None:
    table = new_table(tmp_path, partition_by=partition_by)
    batch = rows(30, "x", "y")
    for operation in ("insert", "bulk_insert", "insert"):
        getattr(table, operation)(batch)
    assert bag(table) == Counter({(row["p"], row["v"]): 3 for row in batch.to_pylist()})
    properties = (tmp_path / "t/.hoodie/hoodie.properties").read_text()
    assert "recordkey" not in properties
    assert "precombine" not in properties


def test_keyless_rows_are_replaced_by_partition_and_by_overwrite(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(rows(30, "x", "y", "z"))
    table.delete_partitions("x")
    table.insert_overwrite(rows(4, "y", start=100))
    assert bag(table) == Counter([*(("z", n) for n in range(2, 30, 3)), *(("y", n) for n in range(100, 104))])
    table.overwrite(rows(3, "w"))
    assert bag(table) == Counter(("w", n) for n in range(3))
    table.overwrite(rows(0, "w"))
    assert not bag(table)


def test_many_files_of_one_write_share_no_key(tmp_path: Path) -> None:
    limits = {"hoodie.parquet.max.file.size": 20_000, "lakeformat.write.buffer.bytes": 50_000}
    table = new_table(tmp_path, **limits)
    batches = [rows(2_000, "x", "y", start=start) for start in range(0, 20_000, 2_000)]
    table.bulk_insert(pa.concat_tables(batches).to_reader(max_chunksize=1_000))
    assert len(table.snapshot().files) > 3
    assert bag(table) == Counter((row["p"], row["v"]) for batch in batches for row in batch.to_pylist())


def test_append_to_a_keyless_table_inserts(tmp_path: Path) -> None:
    table = new_table(tmp_path, operation="insert")
    table.write(rows(3, "x"), Operation.INSERT)
    assert table.history()[0].operation == "insert"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda table: table.upsert(rows(1, "x")), "operation upsert needs a record key, and .* use insert"),
        (lambda table: table.delete(rows(1, "x")), "operation delete needs a record key, and .* by a condition"),
    ],
)
def test_operation_that_needs_a_key_is_refused(call: Any, words: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(rows(3, "x"))
    with pytest.raises(InvalidOptionError, match=words):
        call(table)
    assert len(table.history()) == 1
    assert len(bag(table)) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.combine.before.insert": True},
        {"hoodie.datasource.insert.dup.policy": "drop"},
        {"hoodie.datasource.insert.dup.policy": "fail"},
    ],
)
def test_options_that_compare_keys_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    table = new_table(tmp_path, **options)
    with pytest.raises(InvalidOptionError, match="compares record keys"):
        table.insert(rows(1, "x"))
    assert not table.history()


@pytest.mark.parametrize("options", [{"ordering": "v"}, {"operation": "upsert"}, {"operation": "delete"}])
def test_options_that_need_a_record_key_are_refused_without_one(options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"needs a record key for .*recordkey"):
        new_table(tmp_path, **options)
    assert not (tmp_path / "t").exists()


def test_generated_keys_are_not_added_to_a_keyed_table(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="v", partition_by="p")
    table.insert(rows(3, "x"))
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    properties.write_text(properties.read_text().replace("hoodie.table.recordkey.fields=v\n", ""))
    with pytest.raises(UnsupportedTableError, match="record key '0', which is not a generated one"):
        lakeformat.open(tmp_path / "t").insert(rows(1, "x"))


BATCHES = st.lists(
    st.tuples(st.sampled_from(["insert", "bulk_insert", "insert_overwrite"]), st.integers(1, 40)), max_size=5
)


@settings(max_examples=examples(25), deadline=None)
@given(BATCHES)
def test_no_sequence_of_writes_makes_a_key_twice(batches: list[tuple[str, int]]) -> None:
    storage = MemoryStorage()
    create_table(Table(storage).context.store, resolve({"partitionpath": "p", "name": "t"}), SCHEMA, SystemClock())
    wanted: Counter[int] = Counter()
    for operation, count in batches:
        getattr(Table(storage), operation)(rows(count, "x"))
        wanted = Counter() if operation == "insert_overwrite" else wanted
        wanted += Counter(range(count))
    read = Table(storage).to_arrow(meta_columns=True)
    assert Counter(read["v"].to_pylist()) == wanted
    assert len(set(read["_hoodie_record_key"].to_pylist())) == len(read)
