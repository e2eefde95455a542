"""Partition folders inside each other are refused in every way, before anything is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError
from lakeformat.keys.partition_paths import find_nested_pair
from tests.helpers import hudi_rs
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="string", p="string", v="int64")
OPERATIONS = ["upsert", "insert", "bulk_insert", "overwrite", "insert_overwrite"]
HIVE = {"hoodie.datasource.write.hive_style_partitioning": True}
OTHERS = [("upsert", {"hoodie.index.type": "GLOBAL_SIMPLE"}), ("upsert", HIVE), ("bulk_insert", HIVE)]


def rows(*partitions: str, first: int = 0) -> pa.Table:
    ids = [f"k{number}" for number in range(first, first + len(partitions))]
    return a_batch(SCHEMA, id=ids, p=partitions, v=first)


def make_table(path: Path, **options: Any) -> lakeformat.Table:
    return a_table(path / "t", schema=SCHEMA, partition_by="p", **options)


def check_refused(table: lakeformat.Table, operation: str, given: pa.Table, inner: str, outer: str) -> None:
    path = Path(table.context.storage.location)
    before = sorted(path.rglob("*.parquet")), [entry.instant_time for entry in table.history()]
    named = f"partition '{inner}' would lie in that of partition '{outer}'.*partitionpath.urlencode=true"
    with pytest.raises(InvalidInputError, match=named):
        getattr(table, operation)(given)
    assert (sorted(path.rglob("*.parquet")), [entry.instant_time for entry in table.history()]) == before


@pytest.mark.parametrize(("operation", "options"), [*((each, {}) for each in OPERATIONS), *OTHERS])
def test_nested_partition_folder_is_refused(operation: str, options: dict[str, Any], tmp_path: Path) -> None:
    table = make_table(tmp_path, **options)
    to = "p={}".format if options is HIVE else str
    check_refused(table, operation, rows("a", "a/b"), to("a/b"), to("a"))
    check_refused(table, operation, rows("a/b/c", "a-b", "a"), to("a/b/c"), to("a"))
    getattr(table, operation)(rows("a/b", "ab", "a-b"))
    check_refused(table, operation, rows("a", first=5), to("a/b"), to("a"))
    check_refused(table, operation, rows("x", "a/b/c", first=5), to("a/b/c"), to("a/b"))
    table.upsert(rows("a/b", "a/c", first=9))
    assert {row["p"] for row in hudi_rs.assert_same_rows(table)} == {"a/b", "ab", "a-b", "a/c"}


def test_folder_of_an_emptied_partition_counts(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.upsert(rows("a", "b"))
    table.delete_partitions("a")
    check_refused(table, "upsert", rows("a/b"), "a/b", "a")


def test_nested_values_are_accepted_where_folders_cannot_nest(tmp_path: Path) -> None:
    table = make_table(tmp_path, **{"hoodie.datasource.write.partitionpath.urlencode": True})
    table.upsert(rows("a", "a/b"))
    assert {row["p"] for row in hudi_rs.assert_same_rows(table)} == {"a", "a/b"}
    both = lakeformat.create(tmp_path / "u", SCHEMA, record_key="id", partition_by=["p", "v"])
    both.upsert(rows("a", "b"))
    both.upsert(rows("a", "c", first=7))
    assert both.to_arrow().num_rows == 4


def test_table_with_nested_folders_can_be_repaired(tmp_path: Path) -> None:
    """Another program may leave such a table. The test makes it while the outer partition is hidden."""
    table = make_table(tmp_path, **{"lakeformat.file.index": False})
    table.upsert(rows("a"))
    root, aside = tmp_path / "t", tmp_path / "aside"
    hidden = [root / "a" / ".hoodie_partition_metadata", *(root / ".hoodie").glob("2*")]
    aside.mkdir()
    for file in hidden:
        file.rename(aside / file.name)
    table.insert(rows("a/b", first=1))
    for file in hidden:
        (aside / file.name).rename(file)
    assert list(table.snapshot().by_partition) == ["a", "a/b"]
    table.upsert(rows("a", "a/b"))
    table.delete(pa.table({"id": ["k0"], "p": ["a/b"]}))
    table.delete_partitions("a/b")
    assert list(table.snapshot().by_partition) == ["a"]


@pytest.mark.parametrize(
    ("fresh", "standing", "pair"),
    [
        ([], ["a", "a/b"], None),
        (["a"], ["b", "ab/c"], None),
        (["a"], ["a"], None),
        (["a", "b", "c/d"], [], None),
        (["a"], ["a/b/c"], ("a", "a/b/c")),
        (["a/b/c"], ["a", "x"], ("a", "a/b/c")),
        (["a/b/c"], ["a/b"], ("a/b", "a/b/c")),
        (["a", "a/b"], [], ("a", "a/b")),
    ],
)
def test_nested_pair_is_found(fresh: list[str], standing: list[str], pair: tuple[str, str] | None) -> None:
    assert find_nested_pair(fresh, standing) == pair
