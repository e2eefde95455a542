"""Every verb keeps Hudi's secondary indexes: they have the value and the key of each row of a full scan."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import LakeformatError, UnsupportedTableError
from lakeformat.metadata_table.compaction import last_compaction
from lakeformat.metadata_table.index_definitions import INDEX_DEFINITIONS
from lakeformat.metadata_table.names import FOLDER, MetadataPartition, partition_of_name
from lakeformat.metadata_table.secondary_keys import (
    join_secondary_keys,
    prefixes_of_values,
    record_keys_of,
    value_prefixes,
)
from lakeformat.model.table_config import TableType
from tests.helpers.faulty import UnlockedStorage
from tests.helpers.fixture_tables import unpack
from tests.metadata_table.test_fixtures import open_table

TABLES = ("hudi_rest/v9_cow_indexes", "hudi_rest/v9_mor_indexes")
CITY = partition_of_name("secondary_index_idx_city")
CITIES = [None, "", "oslo", "a$b", "\\", "\x00", "ünï😀\n"]


def stored_keys(path: Path) -> list[str]:
    metadata = open_table(path)
    assert metadata is not None
    assert isinstance(CITY, MetadataPartition)
    return sorted(metadata.secondary_index(CITY).to_pylist())


def assert_kept(path: Path) -> None:
    rows = lakeformat.open(path).to_arrow(["_hoodie_record_key", "city"])
    keys = join_secondary_keys(rows["city"].combine_chunks(), rows["_hoodie_record_key"].combine_chunks())
    assert stored_keys(path) == sorted(keys.to_pylist())


def rows_of(numbers: range, draw: random.Random, ts: int) -> list[dict[str, Any]]:
    return [
        {"id": n, "name": f"n{n}", "city": draw.choice(CITIES), "price": 1.0, "ts": ts, "part": "abc"[n % 3]}
        for n in numbers
    ]


def verbs(table: lakeformat.Table, draw: random.Random) -> Iterator[None]:
    """Change the table by one verb after the other."""
    yield table.insert(rows_of(range(10, 30), draw, 10))
    yield table.upsert(rows_of(range(5, 20), draw, 600_000))
    yield table.upsert(rows_of(range(5, 20), draw, 1))  # Rows that lose.
    yield table.delete([{"id": n, "part": "abc"[n % 3], "ts": 700_000} for n in (11, 12, 13)])
    yield table.delete(where="city = 'oslo'")
    yield table.update({"city": "bergen"}, "id > 15")
    if table.config.table_type is TableType.MERGE_ON_READ:
        yield table.compact()
    yield table.cluster()
    yield table.insert_overwrite(rows_of(range(30, 36, 3), draw, 1))
    yield table.delete_partitions("part=b")
    yield table.bulk_insert(rows_of(range(40, 50), draw, 1))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("compacted", [True, False])
def test_every_verb_and_its_undo_keep_it(compacted: bool, name: str, tmp_path: Path) -> None:
    path, draw = unpack(name, tmp_path), random.Random(7)
    table = lakeformat.open(path, **{"hoodie.metadata.compact.max.delta.commits": 1 if compacted else 100})
    assert_kept(path)
    table.savepoint()
    (first,) = table.history(1)
    for _ in verbs(table, draw):
        assert_kept(path)
    table.rollback()
    assert_kept(path)
    table.restore(first.instant_time)
    assert_kept(path)
    table.upsert(rows_of(range(4, 8), draw, 900_000))
    assert_kept(path)
    metadata = open_table(path)
    assert metadata is not None
    assert bool(last_compaction(metadata) > "1") == compacted
    assert table.check().findings == ()


def test_check_compares_it_with_a_full_scan(tmp_path: Path) -> None:
    path = unpack(TABLES[0], tmp_path)
    assert lakeformat.open(path).check().findings == ()
    newest = sorted((path / FOLDER / "secondary_index_idx_city").glob(".*.log.*"))[-1]
    newest.unlink()  # Its last deltacommit has deleted the entry of a row.
    (finding,) = lakeformat.open(path).check().findings
    assert "lacks 0 rows and has 1 too many; drop_index('secondary_index_idx_city')" in str(finding)


@pytest.mark.parametrize("name", TABLES)
def test_an_index_of_a_key_in_two_file_groups_is_dropped(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = unpack(name, tmp_path)
    lakeformat.open(path).insert([{"id": 1, "name": "x", "city": "x", "price": 1.0, "ts": 1, "part": "b"}])
    assert "dropped expr_index_idx_day, secondary_index_idx_city from" in caplog.text
    metadata = open_table(path)
    assert metadata is not None
    assert set(metadata.names) == {"files", "record_index"}


def test_it_goes_with_the_record_index(tmp_path: Path) -> None:
    path = unpack(TABLES[0], tmp_path)
    assert lakeformat.open(path).drop_index("record_index") == ("record_index", "secondary_index_idx_city")
    metadata = open_table(path)
    assert metadata is not None
    assert set(metadata.names) == {"files", "expr_index_idx_day"}


def test_a_key_is_split_where_it_was_joined() -> None:
    values = pa.array([value for value in CITIES for _ in CITIES])
    keys = pa.array([value or "" for _ in CITIES for value in CITIES])
    joined = join_secondary_keys(values, keys)
    assert len(set(joined.to_pylist())) == len(set(zip(values.to_pylist(), keys.to_pylist(), strict=True)))
    assert record_keys_of(joined).equals(keys)
    ends = zip(joined.to_pylist(), value_prefixes(joined).to_pylist(), strict=True)
    assert all(key.startswith(end) and end.endswith("$") for key, end in ends)
    assert value_prefixes(joined).equals(prefixes_of_values(values))


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_it_is_made_of_the_rows_and_kept(kind: str, tmp_path: Path) -> None:
    schema = lakeformat.open(unpack(TABLES[0], tmp_path)).schema
    path, draw = tmp_path / "new", random.Random(7)
    table = lakeformat.create(
        path,
        schema,
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=kind,
        **{"hoodie.datasource.write.hive_style_partitioning": True, "hoodie.write.table.version": 9},
    )
    table.upsert(rows_of(range(9), draw, 10))
    table.upsert(rows_of(range(5, 9), draw, 20))
    made = table.create_index("idx_city", ["city"])
    assert (made.name, made.type, made.columns) == ("secondary_index_idx_city", "secondary_index", ("city",))
    assert [index.name for index in table.indexes()] == ["files", "record_index", "secondary_index_idx_city"]
    assert made.file_groups == table.indexes()[1].file_groups > 1
    assert_kept(path)
    for _ in verbs(table, draw):
        assert_kept(path)
    assert table.drop_index("idx_city") == ("secondary_index_idx_city",)
    assert json.loads((path / INDEX_DEFINITIONS).read_text())["indexDefinitions"].keys() == {"record_index"}


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    path = unpack("hudi_rest/v9_cow_indexes", tmp_path)
    table = lakeformat.open(path)
    for name, columns, why in (
        ("by_price", ["price"], "its type must be text"),
        ("by_two", ["city", "name"], "needs one column, not 2"),
        ("by nothing", ["name"], "a secondary index of one column under another name"),
        ("by_nothing", ["nothing"], "has no column 'nothing'"),
        ("idx_city", ["city"], "has index secondary_index_idx_city already"),
        ("record_indx", ["name"], "did you mean 'record_index'"),
    ):
        with pytest.raises(LakeformatError, match=re.escape(why)):
            table.create_index(name, columns)
    table.insert([{**rows_of(range(1, 2), random.Random(1), 1)[0], "part": "c"}])
    with pytest.raises(UnsupportedTableError, match=r"a key has rows in several file groups.*dedupe\(\)"):
        table.create_index("by_name", ["name"])
    assert [index.name for index in table.indexes()] == ["files", "record_index"]


def test_repair_makes_it_again(tmp_path: Path) -> None:
    path = unpack(TABLES[1], tmp_path)
    for file in (path / FOLDER / "files").glob(".files-0000-0_2*"):
        file.unlink()
    table = lakeformat.open(path)
    assert table.repair().findings
    assert [index.name for index in table.indexes()] == ["files", "record_index", "secondary_index_idx_city"]
    assert_kept(path)


@pytest.mark.parametrize("name", TABLES)
def test_writers_without_a_lock_keep_it(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    table = lakeformat.Table(UnlockedStorage(str(path)))
    for rows in ([*rows_of(range(4, 20), random.Random(2), 10**6)], [*rows_of(range(9), random.Random(3), 10**6)][4:]):
        table.upsert(rows)
        assert_kept(path)
    table.rollback()
    assert_kept(path)


def test_buckets_to_which_others_may_append_keep_it(tmp_path: Path) -> None:
    schema = lakeformat.open(unpack(TABLES[0], tmp_path)).schema
    path, draw = tmp_path / "new", random.Random(7)
    options = {
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.write.table.version": 9,
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    }
    how = {"record_key": "id", "partition_by": "part", "ordering": "ts", "table_type": "MERGE_ON_READ"}
    table = lakeformat.create(path, schema, **how, **options)
    table.upsert(rows_of(range(20), draw, 10))
    table.create_index("idx_city", ["city"])
    late = lakeformat.open(path, **options)
    table.upsert(rows_of(range(10), draw, 20))
    late.upsert(rows_of(range(5, 15), draw, 15))
    assert_kept(path)


def test_a_deleted_key_that_comes_back_in_another_file_is_kept(tmp_path: Path) -> None:
    path = unpack(TABLES[1], tmp_path)
    table = lakeformat.open(path, **{"hoodie.parquet.small.file.limit": 0})
    table.delete([{"id": 3, "part": "b", "ts": 800_000}])
    table.insert([{"id": 3, "name": "x", "city": "x", "price": 1.0, "ts": 900_000, "part": "b"}])
    assert_kept(path)
