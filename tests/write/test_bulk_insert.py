"""bulk_insert's sort modes and partitioners: order within files, ranges between them, sizes, nothing lost."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError, SchemaMismatchError, Table
from lakeformat.config.resolve import resolve
from lakeformat.storage import MemoryStorage, SystemClock
from lakeformat.write.intake import create_table
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="string", p="string", n="int64", x="float64", w="binary")
MODE = "hoodie.bulkinsert.sort.mode"
COLUMNS = "hoodie.bulkinsert.user.defined.partitioner.sort.columns"
PARTITIONER = "lakeformat.bulkinsert.partitioner"
#: The sizes are so small that one write makes many runs and many files.
TINY = {"lakeformat.write.buffer.bytes": 100_000, "hoodie.parquet.max.file.size": 120_000}
MODES = ["NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"]
SORTED = [mode for mode in MODES if mode.endswith("SORT")]


def rows(count: int, partitions: int = 3, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    numbers = random.permutation(count)
    values = random.random(count)
    return pa.table(
        {
            "id": [f"key-{n * 7919 % 1_000_003:07}" for n in numbers],
            "p": [f"p{n % partitions}" for n in numbers],
            "n": pa.array(numbers % 17, mask=numbers % 11 == 0),
            "x": values,
            "w": [random.bytes(100) for _ in range(count)],
        },
        schema=SCHEMA,
    )


def new_table(folder: Path, **options: Any) -> Table:
    settings = {"record_key": "id", "partition_by": "p", **TINY, **options}
    return lakeformat.create(folder / "t", SCHEMA, **settings)


def files_of(table: Table) -> dict[str, list[pa.Table]]:
    """Return partition -> the rows of its files, in their order."""
    root = Path(table.context.storage.location)
    return {
        partition: [pq.ParquetFile(root / file.path).read() for file in files]
        for partition, files in table.snapshot().by_partition.items()
    }


def assert_holds(table: Table, wanted: pa.Table) -> None:
    """Check that the table holds these rows, for hudi-rs and for us."""
    hudi_rs.assert_same_rows(table)
    order = [("id", "ascending"), ("n", "ascending"), ("x", "ascending")]
    read = table.to_arrow(meta_columns=False).select(SCHEMA.names)
    assert read.sort_by(order).equals(wanted.sort_by(order))


def keys_of(part: pa.Table) -> list[Any]:
    return part["_hoodie_record_key"].to_pylist()


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_keeps_every_row_and_the_size_limit(mode: str, tmp_path: Path) -> None:
    batch = rows(6_000)
    table = new_table(tmp_path, **{MODE: mode})
    table.bulk_insert(batch.to_reader(max_chunksize=500))
    assert_holds(table, batch)
    files = table.snapshot().files
    assert max(file.size_bytes for file in files) <= 1.1 * TINY["hoodie.parquet.max.file.size"]
    assert len(files) > 3
    assert not list(Path(table.context.storage.location).rglob("*.arrow"))


@pytest.mark.parametrize("mode", SORTED)
def test_sorted_files_do_not_overlap(mode: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, **{MODE: mode})
    table.bulk_insert(rows(6_000).to_reader(max_chunksize=500))
    found = files_of(table)
    assert {len(parts) > 1 for parts in found.values()} == {True}
    for parts in found.values():
        keys = sorted((keys_of(part) for part in parts), key=lambda keys: keys[0])
        assert all(part == sorted(part) for part in keys)
        assert all(before[-1] < after[0] for before, after in itertools.pairwise(keys))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "NONE"])
def test_partitions_end_in_as_few_files_as_the_limit_allows(mode: str, tmp_path: Path) -> None:
    """In forty partitions, an unsorted write would have at most sixteen files open at a time."""
    limits = {"lakeformat.write.buffer.bytes": 100_000, "hoodie.parquet.max.file.size": 125829120}
    table = new_table(tmp_path, **{MODE: mode}, **limits)
    batch = rows(8_000, partitions=40)
    table.bulk_insert(batch.to_reader(max_chunksize=500))
    assert {len(files) for files in table.snapshot().by_partition.values()} == {1}
    assert_holds(table, batch)


def test_repartitioning_alone_keeps_the_order_of_arrival(tmp_path: Path) -> None:
    limits = {"hoodie.parquet.max.file.size": 125829120}
    table = new_table(tmp_path, **{MODE: "PARTITION_PATH_REPARTITION"}, **limits)
    batch = rows(4_000)
    table.bulk_insert(batch.to_reader(max_chunksize=300))
    for partition, (part,) in files_of(table).items():
        assert part["id"].to_pylist() == batch.filter(pc.equal(batch["p"], partition))["id"].to_pylist()


def pairs(part: pa.Table) -> list[tuple[int, float]]:
    """Return the values of n and x. A null n is greater than all."""
    return list(zip(pc.fill_null(part["n"], 1_000).to_pylist(), part["x"].to_pylist(), strict=True))


@pytest.mark.parametrize("how", ["option", "argument", "Hudi's class"])
def test_user_sort_columns_order_the_files(how: str, tmp_path: Path) -> None:
    options = {} if how == "argument" else {COLUMNS: "n,x"}
    if how == "Hudi's class":
        name = "org.apache.hudi.execution.bulkinsert.RowCustomColumnsSortPartitioner"
        options["hoodie.bulkinsert.user.defined.partitioner.class"] = name
    table = new_table(tmp_path, **options)
    batch = rows(6_000)
    table.bulk_insert(batch.to_reader(max_chunksize=500), **({"sort_columns": ["n", "x"]} if how == "argument" else {}))
    assert_holds(table, batch)
    for parts in files_of(table).values():
        plain = sorted(pairs(part) for part in parts)
        assert all(part == sorted(part) for part in plain)
        assert all(before[-1] <= after[0] for before, after in itertools.pairwise(plain))


def by_last_digit(part: pa.Table) -> pa.Array:
    """Return the file of each row, which is the last digit of its key."""
    return pc.utf8_slice_codeunits(part["id"], -1).cast(pa.int32())


@pytest.mark.parametrize("mode", ["NONE", "GLOBAL_SORT"])
@pytest.mark.parametrize("how", ["argument", "option"])
def test_a_partitioner_decides_the_file_of_each_row(how: str, mode: str, tmp_path: Path) -> None:
    limits = {"hoodie.parquet.max.file.size": 125829120}
    options = {PARTITIONER: f"{__name__}:by_last_digit"} if how == "option" else {}
    table = new_table(tmp_path, **{MODE: mode}, **limits, **options)
    batch = rows(6_000)
    table.bulk_insert(batch.to_reader(max_chunksize=500), partitioner=by_last_digit if how == "argument" else None)
    assert_holds(table, batch)
    for parts in files_of(table).values():
        digits = ["".join({key[-1] for key in keys_of(part)}) for part in parts]
        assert sorted(digits) == list("0123456789")
        if mode == "GLOBAL_SORT":
            assert all(keys_of(part) == sorted(keys_of(part)) for part in parts)


@pytest.mark.parametrize(
    "partitioner", [lambda part: [0], lambda part: part["x"], lambda part: pa.nulls(part.num_rows), lambda part: None]
)
def test_partitioners_that_give_no_numbers_are_refused(partitioner: Any, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(InvalidInputError, match="one integer, the number of the output file, for each row"):
        table.bulk_insert(rows(100), partitioner=partitioner)
    assert not table.history()
    assert not table.context.store.load().pending


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({COLUMNS: "nn"}, SchemaMismatchError, "the sort column 'nn'"),
        ({PARTITIONER: "no.such:thing"}, InvalidOptionError, "cannot be imported"),
        ({PARTITIONER: "math:pi"}, InvalidOptionError, "is not a function"),
        ({COLUMNS: "n", "hoodie.combine.before.insert": True}, InvalidOptionError, "sorts by record key"),
        (
            {"hoodie.bulkinsert.user.defined.partitioner.class": "RowCustomColumnsSortPartitioner"},
            InvalidOptionError,
            "needs columns to sort by",
        ),
    ],
)
def test_bad_layouts_are_refused(options: dict[str, Any], error: type[Exception], words: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, **options)
    with pytest.raises(error, match=words):
        table.bulk_insert(rows(10))
    assert not table.history()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hoodie.bulkinsert.user.defined.partitioner.class", "com.shop.MyPartitioner"),
        (PARTITIONER, "by_last_digit"),
        (MODE, "SORTED"),
    ],
)
def test_malformed_options_are_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        resolve({name: text})


def test_sorting_works_with_generated_keys(tmp_path: Path) -> None:
    table = new_table(tmp_path, record_key=(), **{COLUMNS: "x"})
    batch = rows(3_000)
    table.bulk_insert(batch.to_reader(max_chunksize=500))
    assert_holds(table, batch)
    assert len(set(table.to_arrow(meta_columns=True)["_hoodie_record_key"].to_pylist())) == 3_000


def test_combined_rows_are_in_key_order(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{MODE: "GLOBAL_SORT", "hoodie.combine.before.insert": True})
    batch = rows(2_000)
    table.bulk_insert(pa.concat_tables([batch, batch]))
    assert_holds(table, batch)
    assert all(keys_of(part) == sorted(keys_of(part)) for parts in files_of(table).values() for part in parts)


LISTS = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(-5, 5)), st.floats(allow_nan=False)), max_size=60
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LISTS, st.sampled_from([("n",), ("n", "x"), ("x",), ("id",)]), st.integers(1, 7))
def test_merged_runs_are_the_sorted_input(
    values: list[tuple[int, int | None, float]], columns: tuple[str, ...], at_once: int
) -> None:
    table = pa.table(
        {
            "id": [f"{at:03}" for at in range(len(values))],
            "p": [f"p{p}" for p, _, _ in values],
            "n": pa.array([n for _, n, _ in values], pa.int64()),
            "x": pa.array([x for _, _, x in values], pa.float64()),
            "w": pa.nulls(len(values), pa.binary()),
        },
        schema=SCHEMA,
    )
    options = {"recordkey": "id", "partitionpath": "p", "name": "t", "lakeformat.write.buffer.bytes": 1}
    written = Table(MemoryStorage(), resolve({**options, COLUMNS: ",".join(columns)}))
    create_table(written.context.store, written.options, SCHEMA, SystemClock())
    written.bulk_insert(table.to_reader(max_chunksize=at_once))
    assert len(written.snapshot().files) == len(set(table["p"].to_pylist()))
    for partition in set(table["p"].to_pylist()):
        found = written.to_arrow(meta_columns=False, where=f"p = '{partition}'")
        mine = table.filter(pc.equal(table["p"], partition))
        order = pc.sort_indices(mine, [(name, "ascending") for name in columns])
        assert found.select(list(columns)).equals(mine.take(order).select(list(columns)))
        assert sorted(found["id"].to_pylist()) == mine["id"].to_pylist()
