"""A key that log files deleted from one file group, and that a write inserted into another, exists once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import DuplicateKeyError
from lakeformat.model.operation import Operation
from tests.helpers.local_shuffle import write_shuffled

INDEXES = ["AUTO", "BLOOM", "SIMPLE", "INMEMORY", "GLOBAL_SIMPLE"]


def rows(*ids: int, v: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "ts": pa.array([7] * len(ids), pa.int64()), "v": [v] * len(ids)})


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def standing(table: lakeformat.Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())


def make_table(path: Path, version: int, ordering: dict[str, str], index: str = "AUTO") -> lakeformat.Table:
    """Create a table in which key 1 was deleted from the first file group and inserted into the second.

    Key 2 was deleted from both.
    """
    options: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0, "hoodie.index.type": index}
    kind = {"hoodie.write.table.version": version, "table_type": "MERGE_ON_READ"}
    lakeformat.create(path, rows(1, v="").schema, record_key="id", **kind, **ordering)
    table = lakeformat.open(path, **options)
    table.insert(rows(1, 2, 3, v="first"))
    table.delete(keys(1, 2))
    table.insert(rows(1, 2, v="second"))
    table.delete(keys(2))
    assert standing(table) == [(1, "second"), (3, "first")]
    return table


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("ordering", [{}, {"ordering": "ts"}], ids=["as they come", "ordered"])
@pytest.mark.parametrize("way", [*INDEXES, "in tasks", "some columns"])
def test_upsert_changes_the_reinserted_row_of_a_deleted_key(
    tmp_path: Path, version: int, ordering: dict[str, str], way: str
) -> None:
    table = make_table(tmp_path / "t", version, ordering, way if way in INDEXES else "AUTO")
    if way == "in tasks":
        write_shuffled(table, [rows(1, v="third"), rows(2, 4, v="third")], Operation.UPSERT)
    else:
        table.upsert(rows(1, 2, 4, v="third"), partial_update=way == "some columns")
    assert standing(table) == [(1, "third"), (2, "third"), (3, "first"), (4, "third")]
    table.delete(keys(1, 2))
    assert standing(table) == [(3, "first"), (4, "third")]


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("ordering", [{}, {"ordering": "ts"}], ids=["as they come", "ordered"])
@pytest.mark.parametrize("in_tasks", [False, True], ids=["in process", "in tasks"])
def test_duplicate_policy_inserts_only_the_key_that_is_deleted_everywhere(
    tmp_path: Path, version: int, ordering: dict[str, str], in_tasks: bool
) -> None:
    make_table(tmp_path / "t", version, ordering)
    policy = "hoodie.datasource.insert.dup.policy"
    refusing, dropping = (lakeformat.open(tmp_path / "t", **{policy: name}) for name in ("fail", "drop"))
    for table, ids in ((refusing, [1, 2]), (dropping, [1, 2, 3, 4, 4]), (refusing, [5])):
        write = partial(write_shuffled, table, [rows(*ids, v="third")], Operation.INSERT)
        if not in_tasks:
            write = partial(table.insert, rows(*ids, v="third"))
        if table is dropping or ids == [5]:
            write()
        else:
            with pytest.raises(DuplicateKeyError, match=r"1 record key.* in the table already, e\.g\. '1'"):
                write()
    assert standing(dropping) == [(1, "second"), (2, "third"), (3, "first"), (4, "third"), (5, "third")]
