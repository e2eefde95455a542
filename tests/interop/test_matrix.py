"""Every operation under every index on every kind of table: a dictionary, hudi-rs and Hudi agree after each one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

SCHEMA: Final = a_schema(id="string", p="string", v="int64", ts="int64")
INDEXES: Final[Mapping[str, Mapping[str, str]]] = {
    "AUTO": {},
    "BLOOM": {"hoodie.index.type": "BLOOM"},
    "SIMPLE": {"hoodie.index.type": "SIMPLE"},
    "INMEMORY": {"hoodie.index.type": "INMEMORY"},
    "BUCKET": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
    "GLOBAL_BLOOM": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "GLOBAL_SIMPLE": {"hoodie.index.type": "GLOBAL_SIMPLE"},
}
#: Our index -> Hudi's, for an index that Hudi lacks or keeps in the memory of one session.
THEIRS: Final = {"AUTO": "BLOOM", "INMEMORY": "BLOOM"}
KINDS: Final = [(version, kind) for version in (6, 8, 9) for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")]
ON_EVERY_RUN: Final = {("GLOBAL_BLOOM", 8, "MERGE_ON_READ"), ("SIMPLE", 9, "COPY_ON_WRITE")}

Model = dict[str, tuple[str, int, int]]  # id -> p, v, ts
Step = Callable[[lakeformat.Table, Model], Model]


def cases() -> list[object]:
    """Return the cases: Hudi 1.2.0 with all, 0.15.0 with the ones that it supports. Every run tests two of 1.2.0."""
    return [
        pytest.param(
            hudi,
            index,
            version,
            kind,
            marks=() if hudi == "1.2.0" and (index, version, kind) in ON_EVERY_RUN else pytest.mark.nightly,
        )
        for hudi in ("0.15.0", "1.2.0")
        for index in INDEXES
        for version, kind in KINDS
        if version == 6 or hudi != "0.15.0"
    ]


def rows(held: Model) -> pa.Table:
    columns = ([*held], *([row[at] for row in held.values()] for at in range(3)))
    return pa.table(list(columns), schema=SCHEMA)


def make_model(numbers: range, edition: int) -> Model:
    return {f"k{n:02}": (f"p{n % 3}", edition, edition) for n in numbers}


def put(operation: str, numbers: range, edition: int) -> Step:
    """Return a step that writes rows, and removes from the model the rows that an overwrite hides."""

    def run(table: lakeformat.Table, model: Model) -> Model:
        new = make_model(numbers, edition)
        getattr(table, operation)(rows(new))
        hidden = {"insert_overwrite": {path for path, _, _ in new.values()}, "overwrite": {"p0", "p1", "p2"}}
        gone = hidden.get(operation, set())
        return {key: row for key, row in model.items() if row[0] not in gone} | new

    return run


def delete(numbers: range) -> Step:
    def run(table: lakeformat.Table, model: Model) -> Model:
        gone = make_model(numbers, 0)
        table.delete(rows(gone).select(["id", "p"]))
        return {key: row for key, row in model.items() if key not in gone}

    return run


def update_where(table: lakeformat.Table, model: Model) -> Model:
    table.update({"v": -1}, where="id >= 'k10' and p = 'p1'")
    return {key: (p, -1 if key >= "k10" and p == "p1" else v, ts) for key, (p, v, ts) in model.items()}


def delete_where(table: lakeformat.Table, model: Model) -> Model:
    table.delete(where="id between 'k03' and 'k05'")
    return {key: row for key, row in model.items() if not "k03" <= key <= "k05"}


def merge(table: lakeformat.Table, model: Model) -> Model:
    new = make_model(range(12, 30, 4), 60)
    table.merge(rows(new)).when_matched_update(["v"]).when_not_matched_insert().execute()
    kept = {key: (p, 60 if key in new else v, ts) for key, (p, v, ts) in model.items()}
    return kept | {key: row for key, row in new.items() if key not in model}


def delete_partition(table: lakeformat.Table, model: Model) -> Model:
    table.delete_partitions("p2")
    return {key: row for key, row in model.items() if row[0] != "p2"}


STEPS: Final[Mapping[str, Step]] = {
    "bulk_insert": put("bulk_insert", range(10), 10),
    "insert": put("insert", range(10, 20), 20),
    "upsert": put("upsert", range(5, 24), 30),
    "delete": delete(range(0, 24, 6)),
    "update where": update_where,
    "delete where": delete_where,
    "insert again": put("insert", range(3, 5), 50),
    "merge": merge,
    "upsert again": put("upsert", range(2, 26, 2), 70),
    "insert_overwrite": put("insert_overwrite", range(1, 31, 3), 80),
    "delete_partition": delete_partition,
    "upsert after it": put("upsert", range(0, 30, 4), 90),
    "overwrite": put("overwrite", range(15), 100),
    "upsert after all": put("upsert", range(8, 18), 110),
}


def model_of(table: pa.Table) -> Model:
    found = {row["id"]: (row["p"], row["v"], row["ts"]) for row in table.to_pylist()}
    assert len(found) == table.num_rows, "a key is doubled"
    return found


@pytest.mark.parametrize(("hudi", "index", "version", "kind"), cases(), indirect=["hudi"])
def test_all_agree_after_every_operation(index: str, version: int, kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = {"table_type": kind, "hoodie.write.table.version": version, **INDEXES[index]}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="p", ordering="ts", **made)
    model: Model = {}

    def agree(name: str) -> None:
        assert model_of(lakeformat.open(path).to_arrow()) == model, name
        assert model_of(hudi.read(path)) == model, name
        hudi_rs.assert_same_rows(lakeformat.open(path))

    for name, step in STEPS.items():
        model = step(table, model)
        agree(name)
    theirs = {
        **INDEXES[index],
        "hoodie.index.type": THEIRS.get(index, index),
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.write.table.version": str(version),
        "hoodie.compact.inline": "false",
    }
    hudi.write(path, rows(make_model(range(0, 20, 3), 120)), "upsert", **theirs)
    model = model | make_model(range(0, 20, 3), 120)
    agree("upsert by Hudi")
    model = put("upsert", range(0, 24, 2), 130)(table, model)
    agree("upsert after Hudi's")
