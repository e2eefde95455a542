"""Tables of versions 8 and 9 under every operation and index: a dictionary has the expected rows, and hudi-rs agrees.

Timeline layout 2 keeps its rules after each step: three files per instant, Avro content, completion times that grow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

import lakeformat
from lakeformat.index.factory import INDEXES
from lakeformat.model.instant import Action
from tests.helpers import hudi_rs
from tests.helpers.tables import a_schema

SCHEMA: Final = a_schema(id="int64", region="string", ts="int64", v="string")
Model = dict[int, dict[str, Any]]

VERSION: Final = "hoodie.write.table.version"


def rows_of(ids: tuple[int, ...], ts: int) -> list[dict[str, Any]]:
    return [{"id": n, "region": f"r{n % 3}", "ts": ts, "v": f"{n}@{ts}"} for n in ids]


def batch(ids: tuple[int, ...], ts: int) -> pa.Table:
    return pa.Table.from_pylist(rows_of(ids, ts), SCHEMA)


def make_table(path: Path, version: str, **options: Any) -> lakeformat.Table:
    return lakeformat.create(
        path, SCHEMA, record_key="id", partition_by="region", ordering="ts", **{VERSION: version}, **options
    )


def with_rows(model: Model, ids: tuple[int, ...], ts: int) -> Model:
    return model | {row["id"]: row for row in rows_of(ids, ts) if model.get(row["id"], row)["ts"] <= ts}


def without(model: Model, gone: Callable[[dict[str, Any]], bool]) -> Model:
    return {id_: row for id_, row in model.items() if not gone(row)}


def assert_state(table: lakeformat.Table, model: Model) -> None:
    found = table.to_arrow(meta_columns=False).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [model[id_] for id_ in sorted(model)]
    hudi_rs.assert_same_rows(table)


def assert_layout_2(path: Path) -> None:
    table = lakeformat.open(path)
    folder = path / ".hoodie/timeline"
    assert not list((path / ".hoodie").glob("[0-9]*"))
    instants = table.snapshot().timeline.instants
    assert not table.snapshot().timeline.pending
    times = [(instant.time, instant.completed_at) for instant in instants]
    assert all(begin < end for begin, end in times)
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(times))
    for instant in instants:
        names = {file.name for file in folder.glob(f"{instant.time}*")}
        assert len(names) == 3, names
        (done,) = (name for name in names if "_" in name)
        with (folder / done).open("rb") as file:
            (record,) = fastavro.reader(file)
        assert ("partitionToReplaceFileIds" in record) is (instant.action is Action.REPLACE_COMMIT)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["8", "9"])
@pytest.mark.parametrize("index", INDEXES)
def test_every_operation_works_in_layout_2(index: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    buckets = {"hoodie.bucket.index.num.buckets": 2} if index == "BUCKET" else {}
    table = make_table(path, version, **{"hoodie.index.type": index}, **buckets)
    first, second, new = tuple(range(9)), (0, 3, 4, 20, 21), (30, 31)
    table.insert(batch(first, 1))
    model = with_rows({}, first, 1)
    table.upsert(batch(second, 3))
    model = with_rows(model, second, 3)
    table.upsert(batch((0, 1), 2))  # The batch is late for one of the two.
    model = with_rows(model, (0, 1), 2)
    assert_state(table, model)
    table.bulk_insert(batch(new, 3)) if index != "BUCKET" else table.upsert(batch(new, 3))
    model = with_rows(model, new, 3)
    table.delete(batch((2, 20, 99), 4).select(["id", "region"]))
    model = without(model, lambda row: row["id"] in {2, 20})
    assert_state(table, model)
    table.insert_overwrite(batch((3, 6, 33), 5))
    model = without(model, lambda row: row["region"] == "r0") | with_rows({}, (3, 6, 33), 5)
    assert_state(table, model)
    table.delete_partitions(["r2"])
    model = without(model, lambda row: row["region"] == "r2")
    table.upsert(batch((2, 3, 4), 6))
    model = with_rows(model, (2, 3, 4), 6)
    assert_state(table, model)
    assert_layout_2(path)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["8", "9"])
def test_statements_batch_ids_and_clusterings_work_in_layout_2(version: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make_table(path, version, **{"hoodie.parquet.small.file.limit": 0})
    messages: list[Any] = []
    table.bulk_insert(batch(tuple(range(6)), 1))
    table.bulk_insert(batch(tuple(range(6, 12)), 1), callbacks=[messages.append])
    assert [message.action for message in messages] == ["commit"]
    model = with_rows({}, tuple(range(12)), 1)
    table.update({"v": "changed"}, where="id < 4")
    model |= {n: model[n] | {"v": "changed"} for n in range(4)}
    table.delete(where="id = 5")
    del model[5]
    table.merge(batch((1, 50), 7)).when_matched_update(["v"]).when_not_matched_insert().execute()
    model |= {1: model[1] | {"v": "1@7"}} | with_rows({}, (50,), 7)
    assert_state(table, model)
    result = table.cluster(by=["v"])
    assert result.report["files"]["replaced"] > 0
    assert_state(table, model)
    planned = table.schedule_clustering(by="id")
    assert planned is not None
    assert (path / f".hoodie/timeline/{planned}.clustering.requested").exists()
    with pytest.raises(lakeformat.WriteConflictError, match=planned):
        table.upsert(batch((0,), 8))
    assert table.run_clustering(planned).instant_time == planned
    cancelled = table.schedule_clustering(by="ts")
    assert cancelled is not None
    table.cancel_clustering(cancelled)
    inline = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 1}
    lakeformat.open(path, **inline, **{"hoodie.parquet.small.file.limit": 0}).upsert(batch((60,), 8))
    model = with_rows(model, (60,), 8)
    assert [entry.operation for entry in table.history()][:2] == ["cluster", "upsert"]
    assert_state(table, model)
    for batch_id in (1, 2, 2):
        sent = lakeformat.open(path, **{"lakeformat.batch.app": "app", "lakeformat.batch.id": batch_id})
        sent.upsert(batch((batch_id,), 9 + batch_id))
    model = with_rows(with_rows(model, (1,), 10), (2,), 11)
    table.overwrite(batch((1, 2), 20))
    assert_state(table, with_rows({}, (1, 2), 20))
    assert_state(lakeformat.open(path), with_rows({}, (1, 2), 20))
