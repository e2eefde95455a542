"""Tables of versions 8 and 9, shared with Apache Hudi 1.2.0: both read and continue the tables of the other.

The oracle is a dict from record key to row. Hudi's writers keep a metadata table. Our commits keep its list of files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)]

SCHEMA: Final = a_schema(id="int64", region="string", ts="int64", v="string")
Model = dict[int, dict[str, Any]]


def rows_of(ids: range, ts: int) -> Model:
    return {n: {"id": n, "region": f"r{n % 2}", "ts": ts, "v": f"{n}@{ts}"} for n in ids}


def batch(ids: range, ts: int) -> pa.Table:
    return pa.Table.from_pylist(list(rows_of(ids, ts).values()), SCHEMA)


def hudi_options(version: str, **more: str) -> dict[str, str]:
    """Return the options that Hudi needs to continue a table. Its metadata table is on, as by default."""
    return {
        "hoodie.write.table.version": version,
        "hoodie.table.ordering.fields": "ts",
        "hoodie.metadata.enable": "true",
        **more,
    }


def strip_meta(rows: list[dict[str, Any]]) -> Model:
    found = {row["id"]: {name: row[name] for name in SCHEMA.names} for row in rows}
    assert len(found) == len(rows), "a record key is doubled"
    return found


def assert_all_read(path: Path, hudi: Hudi, model: Model) -> None:
    """Check that lakeformat, hudi-rs and Hudi, which lists files by its metadata table, read the rows of the model."""
    assert strip_meta(hudi_rs.assert_same_rows(lakeformat.open(path))) == model
    assert strip_meta(hudi.read(path).to_pylist()) == model


@pytest.mark.parametrize("version", ["8", "9"])
def test_both_read_the_rows_of_alternating_writes(version: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakeformat.create(
        path, SCHEMA, record_key="id", partition_by="region", ordering="ts", **{"hoodie.write.table.version": version}
    )
    table.insert(batch(range(8), 1))
    table.upsert(batch(range(4, 12), 2))
    table.delete(where="id = 0")
    model = rows_of(range(1, 8), 1) | rows_of(range(4, 12), 2)
    assert_all_read(path, hudi, model)
    hudi.write(path, batch(range(2, 5), 3), "upsert", **hudi_options(version))
    model |= rows_of(range(2, 5), 3)
    assert (path / ".hoodie/metadata").exists()
    assert_all_read(path, hudi, model)
    table.cluster(by=["v"])
    assert "files" in table.config.get("hoodie.table.metadata.partitions").split(",")
    assert_all_read(path, hudi, model)
    table.insert_overwrite(batch(range(1, 7, 2), 4))
    model = {n: row for n, row in model.items() if n % 2 == 0} | rows_of(range(1, 7, 2), 4)
    assert_all_read(path, hudi, model)
    hudi.delete(path, batch(range(1, 3), 5), **hudi_options(version))
    hudi.write(path, batch(range(20, 23), 5), "bulk_insert", **hudi_options(version))
    model = {n: row for n, row in model.items() if n > 2} | rows_of(range(20, 23), 5)
    table.upsert(batch(range(3, 22), 6))
    model |= rows_of(range(3, 22), 6)
    assert_all_read(path, hudi, model)
    planned = table.schedule_clustering(by="id")
    hudi.run(f"CALL run_clustering(path => '{path}', op => 'execute')", settings={"hoodie.metadata.enable": "false"})
    assert table.history()[0].instant_time == planned
    assert_all_read(path, hudi, model)
    table.bulk_insert(batch(range(30, 34), 6))
    model |= rows_of(range(30, 34), 6)
    hudi.run(
        f"CALL run_clustering(path => '{path}', op => 'schedule', order => 'v')",
        settings={"hoodie.metadata.enable": "false"},
    )
    (planned,) = (instant.time for instant in table.snapshot().timeline.pending)
    with pytest.raises(lakeformat.WriteConflictError, match=planned):
        table.upsert(batch(range(3, 22), 7))
    assert table.run_clustering().instant_time == planned
    assert_all_read(path, hudi, model)
    table.delete_partitions(["r1"])
    assert_all_read(path, hudi, {n: row for n, row in model.items() if n % 2 == 0})
    assert table.config.version == int(version)


def test_each_recovers_from_dead_writes_of_the_other(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakeformat.create(
        path, SCHEMA, record_key="id", partition_by="region", ordering="ts", **{"hoodie.write.table.version": "9"}
    )
    table.upsert(batch(range(6), 1))
    table.upsert(batch(range(6), 2))
    dying = Fault(lambda _, call: call.name == "create" and call.path.endswith(".commit"), Mode.BEFORE)
    with pytest.raises(Crash):
        lakeformat.Table(FaultyStorage(LocalStorage(str(path)), dying)).upsert(batch(range(3, 9), 3))
    assert lakeformat.open(path).snapshot().timeline.pending
    hudi.write(path, batch(range(1), 4), "upsert", **hudi_options("9"))
    model = rows_of(range(6), 2) | rows_of(range(1), 4)
    assert not lakeformat.open(path).snapshot().timeline.pending
    assert_all_read(path, hudi, model)

    hudi.write(path, batch(range(9), 5), "upsert", **hudi_options("9", **{"hoodie.metadata.enable": "false"}))
    died = lakeformat.open(path).history()[0].instant_time
    (completed,) = (path / ".hoodie/timeline").glob(f"{died}_*.commit")
    completed.unlink()
    for file in (path / ".hoodie/timeline").glob(f"{died}*"):
        os.utime(file, (1, 1))
    table.upsert(batch(range(5, 7), 6))
    model |= rows_of(range(5, 7), 6)
    assert not [file for file in path.rglob("*.parquet") if died in file.name]
    assert_all_read(path, hudi, model)
    hudi.write(path, batch(range(7, 9), 7), "upsert", **hudi_options("9"))
    assert_all_read(path, hudi, model | rows_of(range(7, 9), 7))


def test_table_moved_between_versions_is_shared(hudi: Hudi, tmp_path: Path) -> None:
    """A table of ours moves from 6 to 9 and back, with a commit of Hudi in each version."""
    path = tmp_path / "t"
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", ordering="ts")
    table.insert(batch(range(8), 1))
    table.insert_overwrite(batch(range(0, 8, 2), 2))
    table.cluster(by=["v"])
    model = rows_of(range(8), 1) | rows_of(range(0, 8, 2), 2)
    for turn, (to, move) in enumerate(
        ((8, table.upgrade), (9, table.upgrade), (8, table.downgrade), (6, table.downgrade))
    ):
        move(to)
        assert_all_read(path, hudi, model)
        assert {row["id"] for row in hudi.read(path, as_of=table.history()[0].instant_time).to_pylist()} == set(model)
        hudi.write(path, batch(range(turn, turn + 3), 10 + turn), "upsert", **hudi_options(str(to)))
        model |= rows_of(range(turn, turn + 3), 10 + turn)
        assert lakeformat.open(path).config.version == to
        assert_all_read(path, hudi, model)
    table.upsert(batch(range(8), 20))
    assert_all_read(path, hudi, model | rows_of(range(8), 20))


def test_we_downgrade_a_table_that_hudi_upgraded(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", ordering="ts")
    table.insert(batch(range(8), 1))
    more = {"hoodie.write.auto.upgrade": "true"}
    hudi.write(path, batch(range(4), 2), "upsert", **hudi_options("9", **more))
    assert table.config.version == 9
    model = rows_of(range(8), 1) | rows_of(range(4), 2)
    assert_all_read(path, hudi, model)
    table.upsert(batch(range(2), 3))
    table.downgrade(6)
    assert_all_read(path, hudi, model | rows_of(range(2), 3))
