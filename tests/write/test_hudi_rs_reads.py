"""hudi-rs reads our tables, now and at each instant: all operations, key generators and types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import Table
from lakeformat.model.operation import Operation
from tests.helpers import hudi_rs
from tests.helpers.table_cases import CASES, PLAIN, Case, Step, plain_rows

LATER = (
    Step("upsert", range(100, 190), 3),
    Step("delete", range(90, 120), 4),
    Step("insert", range(190, 200), 5),
)

Model = dict[int, int]  # The expected rows: number -> edition.


def make(case: Case, folder: Path, **options: str) -> Table:
    schema = case.rows([], 1).schema
    keys: Mapping[str, Any] = {
        "record_key": case.record_key,
        "partition_by": case.partition_by,
        "ordering": "ts",
    }
    return lakeformat.create(folder / case.name, schema, **keys, **case.options, **options)


def run_step(table: Table, case: Case, model: Model, do: Step) -> None:
    """Write, and apply the same change to the model."""
    operation, numbers, edition = do.operation, do.numbers, do.edition
    getattr(table, operation)(case.rows(numbers, edition))
    if operation == "delete":
        for number in numbers:
            model.pop(number, None)
        return
    if operation == "overwrite":
        model.clear()
    model.update(dict.fromkeys(numbers, edition))


def data(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without meta columns, in a fixed order."""
    bare = [{name: value for name, value in row.items() if not name.startswith("_hoodie_")} for row in rows]
    return sorted(bare, key=lambda row: str(row["id"]))


def expected_rows(case: Case, model: Model) -> list[dict[str, Any]]:
    rows = (case.rows([number], edition) for number, edition in model.items())
    return data(row for part in rows for row in part.to_pylist(maps_as_pydicts="strict"))


def assert_as_the_model(table: Table, case: Case, model: Model) -> None:
    assert data(hudi_rs.assert_same_rows(table)) == expected_rows(case, model)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_of_table_is_read_by_hudi_rs(case: Case, tmp_path: Path) -> None:
    table, model = make(case, tmp_path), Model()
    for first in case.steps:
        run_step(table, case, model, first)
    assert_as_the_model(table, case, model)
    past = {table.history()[0].instant_time: expected_rows(case, model)}
    for later in LATER:
        run_step(table, case, model, later)
        past[table.history()[0].instant_time] = expected_rows(case, model)
    assert_as_the_model(table, case, model)
    for instant, rows in past.items():
        assert data(hudi_rs.assert_same_rows(table, as_of=instant)) == rows


NESTED = pa.schema(
    [
        ("id", pa.string()),
        ("who", pa.struct([("name", pa.string()), ("team", pa.struct([("code", pa.int32())]))])),
        ("size", pa.int32()),
        ("at", pa.struct([("ts", pa.int64())])),
    ]
)


def people(names: Iterable[str], ts: int) -> pa.Table:
    rows = [
        {"id": str(ts), "who": {"name": n, "team": {"code": len(n)}}, "size": len(n), "at": {"ts": ts}} for n in names
    ]
    return pa.Table.from_pylist(rows, NESTED)


@pytest.mark.parametrize("partition", ["size", "who.team.code"])
def test_key_partition_and_ordering_inside_structs(partition: str, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", NESTED, record_key="who.name", partition_by=partition, ordering="at.ts")
    table.upsert(people(["ann", "bob", "carla"], 1))
    table.upsert(people(["bob", "dora"], 3))
    table.upsert(people(["bob", "ann"], 2))
    table.delete(people(["carla"], 0))
    # hudi-rs refuses tables whose partition column is inside a struct.
    flat = partition == "size"
    rows = hudi_rs.assert_same_rows(table) if flat else table.to_arrow(meta_columns=True).to_pylist()
    found = {(r["_hoodie_partition_path"], r["_hoodie_record_key"]): r["at"]["ts"] for r in rows}
    assert found == {("3", "ann"): 2, ("3", "bob"): 3, ("4", "dora"): 3}


def test_old_complex_key_encoding_is_read(tmp_path: Path) -> None:
    options = {
        "keygenerator": "ComplexKeyGenerator",
        "hoodie.write.complex.keygen.new.encoding": "false",
    }
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
    created = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p", **options)
    created.upsert(pa.table({"id": ["a", "b"], "p": ["x", "x"], "v": [1, 1]}))
    table = lakeformat.open(tmp_path / "t")  # The stored keys must replace the option.
    table.upsert(pa.table({"id": ["b", "c"], "p": ["x", "y"], "v": [2, 2]}))
    table.delete(pa.table({"id": ["a"]}))
    rows = hudi_rs.assert_same_rows(table)
    assert {r["_hoodie_record_key"]: r["v"] for r in rows} == {"id:b": 2, "id:c": 2}


def test_a_probed_table_whose_first_file_is_empty_keeps_its_form_of_keys(tmp_path: Path) -> None:
    options = {"keygenerator": "ComplexKeyGenerator", "hoodie.write.complex.keygen.new.encoding": "false"}
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p", **options)
    table.upsert(pa.table({"id": ["a", "b"], "p": ["1", "2"]}))
    table.delete(pa.table({"id": ["a"], "p": ["1"]}))
    table = lakeformat.open(tmp_path / "t")
    table.upsert(pa.table({"id": ["b"], "p": ["2"]}))
    assert table.to_arrow(meta_columns=True).column("_hoodie_record_key").to_pylist() == ["id:b"]


def test_insert_overwrite_replaces_the_partitions_it_brings(tmp_path: Path) -> None:
    case = Case("regions", partition_by=("region",))
    table = make(case, tmp_path)
    table.upsert(plain_rows(range(180), 1))
    first = table.history()[0].instant_time
    table.write(plain_rows(range(50, 70), 2), Operation.INSERT_OVERWRITE)
    model = {**dict.fromkeys(range(120, 180), 1), **dict.fromkeys(range(50, 70), 2)}
    assert_as_the_model(table, case, model)
    assert data(hudi_rs.assert_same_rows(table, first)) == expected_rows(case, dict.fromkeys(range(180), 1))
    table.overwrite(plain_rows([3], 4))
    assert_as_the_model(table, case, {3: 4})
    table.overwrite(PLAIN.empty_table())
    assert table.to_arrow().num_rows == 0


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "delete"])
@pytest.mark.parametrize("batches", [0, 1], ids=["no batch", "an empty batch"])
def test_write_of_no_rows_is_a_commit_without_changes(operation: str, batches: int, tmp_path: Path) -> None:
    case = Case("t", partition_by=("region",))
    table = make(case, tmp_path)
    table.upsert(plain_rows(range(5), 1))
    empty = [pa.RecordBatch.from_pylist([], PLAIN)] * batches
    write: Callable[[Any], Any] = getattr(table, operation)
    result = write(pa.RecordBatchReader.from_batches(PLAIN, empty))
    assert table.history()[0].instant_time == result.instant_time
    assert_as_the_model(table, case, dict.fromkeys(range(5), 1))


def test_emptied_file_is_read_and_refilled(tmp_path: Path) -> None:
    case = Case("t", partition_by=("region",))
    table = make(case, tmp_path)
    table.bulk_insert(plain_rows(range(100), 1))
    table.delete(plain_rows(range(60), 2))  # These are all of one region.
    assert_as_the_model(table, case, dict.fromkeys(range(60, 100), 1))
    emptied = [file for file in table.snapshot().files if file.partition_path == "eu"]
    assert len(emptied) == 1
    table.upsert(plain_rows(range(50, 62), 3))
    model = {**dict.fromkeys(range(60, 100), 1), **dict.fromkeys(range(50, 62), 3)}
    assert_as_the_model(table, case, model)
    table.delete(plain_rows(range(100), 4))
    assert hudi_rs.assert_same_rows(table) == []


def test_columns_are_added_and_widened(tmp_path: Path) -> None:
    narrow = pa.schema([("id", pa.string()), ("n", pa.int32())])
    table = lakeformat.create(tmp_path / "t", narrow, record_key="id")
    table.upsert(pa.table({"id": ["a", "b"], "n": pa.array([1, 2], pa.int32())}))
    table.insert(pa.table({"id": ["c"], "n": pa.array([2**40], pa.int64()), "new": ["x"]}))
    assert table.schema == pa.schema([("id", pa.string()), ("n", pa.int64()), ("new", pa.string())])
    rows = hudi_rs.assert_same_rows(table)
    assert data(rows) == [
        {"id": "a", "n": 1, "new": None},
        {"id": "b", "n": 2, "new": None},
        {"id": "c", "n": 2**40, "new": "x"},
    ]


def test_sequence_numbers_are_unique_where_large_and_small_partitions_meet(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    sizes = {"hoodie.parquet.small.file.limit": "100000", "lakeformat.write.buffer.bytes": "1000000"}
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p", **sizes)
    table.insert(pa.table({"id": [str(n) for n in range(150_010)], "p": ["a"] * 150_000 + ["b"] * 10}))
    numbers = table.to_arrow(["_hoodie_commit_seqno"]).column(0)
    assert len(numbers.unique()) == len(numbers) == 150_010
