"""Operations other than upsert, shared with Apache Hudi: each program reads the other's writes and continues.

The oracle is a bag of rows or a dict. Every write is applied to it in a line of Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakeformat
from tests.helpers.hudi_spark import Hudi, table_properties
from tests.helpers.table_cases import FIRST, NEW, PLAIN, REGIONS, plain_rows

pytestmark = pytest.mark.interop

QUIET = {"hoodie.metadata.enable": "false"}
KEPT = ("id", "region", "ts")
Bag = Counter[tuple[object, ...]]


def bag(table: pa.Table) -> Bag:
    """Count the rows by key, region and edition."""
    return Counter(tuple(row[name] for name in KEPT) for row in table.select(KEPT).to_pylist())


def assert_all_hold(path: Path, hudi: Hudi, wanted: Bag) -> None:
    """Check that Hudi, hudi-rs and lakeformat read these rows, under the same keys."""
    ours = lakeformat.open(path).to_arrow(meta_columns=True)
    theirs = hudi.read(path)
    assert bag(ours) == wanted
    assert bag(theirs) == wanted
    assert bag(pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(path)).build().read())) == wanted
    keys = [sorted(table["_hoodie_record_key"].to_pylist()) for table in (ours, theirs)]
    assert keys[0] == keys[1]


def without(rows: Bag, regions: Iterable[str]) -> Bag:
    return Counter({row: count for row, count in rows.items() if row[1] not in set(regions)})


@pytest.mark.parametrize("metadata_table", [False, True])
def test_hudi_sees_our_deleted_partitions(metadata_table: bool, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakeformat.create(path, PLAIN, record_key="id", partition_by="region", ordering="ts")
    table.bulk_insert(plain_rows(FIRST, 1))
    options = {"hoodie.metadata.enable": str(metadata_table).lower()}
    hudi.write(path, plain_rows(NEW, 1), "upsert", **options)
    table.delete_partitions(["eu", "afr*"])
    held = without(bag(plain_rows([*FIRST, *NEW], 1)), ["eu", "africa"])
    assert_all_hold(path, hudi, held)

    again = plain_rows([*range(30), *NEW], 2)
    hudi.write(path, again, "upsert", **options)
    held += bag(again)
    assert_all_hold(path, hudi, held)

    to_delete = {"hoodie.datasource.write.partitions.to.delete": "us"}
    hudi.write(path, again.slice(0, 1), "delete_partition", **to_delete, **options)
    held = without(held, ["us"])
    assert_all_hold(path, hudi, held)
    table.upsert(plain_rows(range(60, 70), 3))
    assert_all_hold(path, hudi, held + bag(plain_rows(range(60, 70), 3)))


@pytest.mark.parametrize("maker", ["hudi", "lakeformat"])
@pytest.mark.parametrize("partition_by", ["", "region"])
def test_hudi_reads_our_keyless_tables(partition_by: str, maker: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = plain_rows(FIRST, 1)
    held: Bag = Counter()
    partitioned = {"hoodie.datasource.write.partitionpath.field": partition_by} if partition_by else {}
    if maker == "hudi":
        hudi.write(path, rows, "insert", **{"hoodie.table.name": "t"}, **partitioned, **QUIET)
        held += bag(rows)
    else:
        lakeformat.create(path, PLAIN, partition_by=partition_by)
    assert "hoodie.table.recordkey.fields" not in table_properties(path)
    for operation in ("insert", "bulk_insert", "insert"):
        getattr(lakeformat.open(path), operation)(rows)
        held += bag(rows)
        assert_all_hold(path, hudi, held)
        hudi.write(path, rows, operation, **partitioned, **QUIET)
        held += bag(rows)
        assert_all_hold(path, hudi, held)
    keys = lakeformat.open(path).to_arrow(meta_columns=True)["_hoodie_record_key"].to_pylist()
    assert len(set(keys)) == len(keys)
    if partition_by:
        lakeformat.open(path).delete_partitions(REGIONS[0])
        held = without(held, REGIONS[:1])
        assert_all_hold(path, hudi, held)
    lakeformat.open(path).delete(where="ts = 1 and id < 'key-0100'")
    assert_all_hold(path, hudi, Counter({row: n for row, n in held.items() if str(row[0]) >= "key-0100"}))


def test_hudi_reads_inserts_with_the_drop_policy(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    policy = {"hoodie.datasource.insert.dup.policy": "drop"}
    table = lakeformat.create(path, PLAIN, record_key="id", partition_by="region", ordering="ts", **policy)
    table.insert(plain_rows(FIRST[:100], 1))
    table.insert(plain_rows(FIRST, 2))
    held = bag(plain_rows(FIRST[:100], 1)) + bag(plain_rows(FIRST[100:], 2))
    assert_all_hold(path, hudi, held)
    hudi.write(path, plain_rows([*FIRST, *NEW], 3), "upsert", **QUIET)
    held = bag(plain_rows([*FIRST, *NEW], 3))
    assert_all_hold(path, hudi, held)
    table.insert(plain_rows([*NEW, 200], 4))
    assert_all_hold(path, hudi, held + bag(plain_rows([200], 4)))


@pytest.mark.parametrize("mode", ["GLOBAL_SORT", "PARTITION_PATH_REPARTITION"])
def test_hudi_reads_our_sorted_bulk_inserts(mode: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = {"hoodie.bulkinsert.sort.mode": mode, "lakeformat.write.buffer.bytes": 5_000}
    table = lakeformat.create(path, PLAIN, record_key="id", partition_by="region", ordering="ts", **options)
    table.bulk_insert(plain_rows([*FIRST[::2], *FIRST[1::2]], 1).to_reader(max_chunksize=20))
    assert_all_hold(path, hudi, bag(plain_rows(FIRST, 1)))
    hudi.write(path, plain_rows([*FIRST[::3], *NEW], 2), "upsert", **QUIET)
    rest = [number for number in FIRST if number % 3]
    assert_all_hold(path, hudi, bag(plain_rows([*FIRST[::3], *NEW], 2)) + bag(plain_rows(rest, 1)))
