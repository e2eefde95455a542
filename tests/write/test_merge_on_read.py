"""Writes to merge-on-read tables: every operation under every index, against a dictionary and hudi-rs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import Table
from lakeformat.model.files import LogFileName
from tests.helpers import hudi_rs
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="string", p="string", v="int64", ts="int64")
MERGE_ON_READ = {"table_type": "MERGE_ON_READ"}
INDEXES: Mapping[str, Mapping[str, object]] = {
    "AUTO": {},
    "BLOOM": {"hoodie.index.type": "BLOOM"},
    "SIMPLE": {"hoodie.index.type": "SIMPLE"},
    "INMEMORY": {"hoodie.index.type": "INMEMORY"},
    "BUCKET": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 3},
    "GLOBAL_BLOOM": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "GLOBAL_SIMPLE": {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": True},
}

Key = tuple[str, str]
Model = dict[Key, tuple[int, int]]  # partition and id -> v and ts
#: Every run takes one index of each kind, and one version of each layout.
CASES = [
    pytest.param(
        index,
        version,
        marks=() if (index, version) in {("AUTO", 9), ("BUCKET", 6), ("GLOBAL_SIMPLE", 6)} else pytest.mark.slow,
    )
    for index in INDEXES
    for version in (6, 8, 9)
]


def rows(held: Model) -> pa.Table:
    columns = ([key for _, key in held], [path for path, _ in held], *zip(*held.values(), strict=True))
    return pa.table([list(column) for column in columns] if held else [[], [], [], []], schema=SCHEMA)


def read(table: Table) -> Model:
    """Return the rows. Check that hudi-rs reads the same."""
    found = hudi_rs.assert_same_rows(table)
    model = {(row["p"], row["id"]): (row["v"], row["ts"]) for row in found}
    assert len(model) == len(found)
    return model


def log_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if LogFileName.match(path.name)}


KEYS = st.tuples(st.sampled_from(["x", "y"]), st.sampled_from([f"k{n}" for n in range(12)]))
#: The ordering value of a step's rows. Rows with a lower value than the stored one lose.
STEP = st.tuples(
    st.sampled_from(["upsert", "upsert", "upsert", "delete", "is_deleted", "insert", "overwrite", "insert_overwrite"]),
    st.lists(KEYS, min_size=1, max_size=6, unique=True),
    st.integers(1, 9),
)


class Twin:
    """The expected rows of the table, and the deletes that its log files remember.

    A delete with an ordering value outlives the row that it deleted, until a base file is rewritten: an older row does
    not come back. In a copy-on-write table it would.
    """

    def __init__(self, *, anywhere: bool) -> None:
        self.rows: Model = {}
        self.anywhere = anywhere

    def upsert(self, new: Model) -> None:
        for (path, key), (v, ts) in new.items():
            old = self.of(path, key)
            if old is None or self.rows[old][1] <= ts:
                if old is not None:
                    del self.rows[old]
                self.rows[path, key] = (v, ts)

    def delete(self, keys: list[Key]) -> None:
        for path, key in keys:
            old = self.of(path, key)
            if old is not None:
                del self.rows[old]

    def of(self, path: str, key: str) -> Key | None:
        """Return the place of the key's row, None if there is no row."""
        places = [place for place in self.rows if place[1] == key] if self.anywhere else [(path, key)]
        return next((place for place in places if place in self.rows), None)


@pytest.mark.parametrize(("index", "version"), CASES)
@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate])
@given(steps=st.lists(STEP, min_size=3, max_size=9))
def test_every_operation_under_every_index(
    index: str, version: int, steps: list[tuple[str, list[Key], int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("t")
    options = {**MERGE_ON_READ, **INDEXES[index], "hoodie.write.table.version": version}
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", ordering="ts", **options)
    twin, dead = Twin(anywhere=index.startswith("GLOBAL")), 0
    for number, (operation, places, ts) in enumerate(steps):
        keys = list({key: (path, key) for path, key in places}.values()) if twin.anywhere else places
        held: Model = {key: (number, max(ts, dead)) for key in keys}
        if operation == "delete":
            table.delete(rows(held).select(["id", "p"]))
            twin.delete(keys)
        elif operation == "is_deleted":
            dead = max([9, *(row[1] for row in twin.rows.values())])
            held = dict.fromkeys(keys, (number, dead))
            table.upsert(rows(held).append_column("_hoodie_is_deleted", pa.array([True] * len(keys))))
            twin.delete(keys)
        elif operation == "insert":
            held = {key: row for key, row in held.items() if twin.of(*key) is None}
            if held:
                table.insert(rows(held))
                twin.rows |= held
        elif operation == "upsert":
            table.upsert(rows(held))
            twin.upsert(held)
        else:
            hidden = {path for path, _ in keys} if operation == "insert_overwrite" else {"x", "y"}
            twin.rows = {key: row for key, row in twin.rows.items() if key[0] not in hidden}
            held = {key: row for key, row in held.items() if twin.of(*key) is None}
            getattr(table, operation)(rows(held)) if held else None
            twin.rows |= held
            if not held:
                break
        assert read(table) == twin.rows, (operation, keys)


def test_updates_and_deletes_are_appended_and_inserts_are_not(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="p", **MERGE_ON_READ)
    table.insert(rows({("x", f"k{n}"): (0, 0) for n in range(9)}))
    bases = set((tmp_path / "t").rglob("*.parquet"))
    assert not log_files(tmp_path)
    report = table.upsert(rows({("x", "k1"): (1, 1), ("x", "k2"): (1, 1)})).report
    assert (report["rows"]["updated"], report["files"]["merged"]) == (2, 1)
    assert table.delete(rows({("x", "k3"): (1, 1)}).select(["id", "p"])).report["rows"]["deleted"] == 1
    assert set((tmp_path / "t").rglob("*.parquet")) == bases
    assert len(log_files(tmp_path)) == 2
    # The slice has log files, so new keys open another slice.
    assert table.upsert(rows({("x", "new"): (2, 2)})).report["files"]["created"] == 1
    assert len(read(table)) == 9


def test_new_keys_go_into_one_small_file_without_log_files(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="p", **MERGE_ON_READ)
    # There are two file groups: the second was opened because the first could not be topped up.
    for number in range(2):
        table.bulk_insert(rows({("x", f"k{number}{n}"): (0, 0) for n in range(3)}))
    report = table.upsert(rows({("x", "new"): (1, 1), ("x", "k00"): (1, 1), ("x", "k10"): (1, 1)})).report
    assert report["rows"] == {"incoming": 3, "inserted": 1, "updated": 2, "deleted": 0}
    assert len(log_files(tmp_path)) == 1
    assert read(table)["x", "k10"] == read(table)["x", "k00"] == (1, 1)


def test_bucket_starts_with_a_log_file_and_keeps_its_slice(tmp_path: Path) -> None:
    options = {**MERGE_ON_READ, **INDEXES["BUCKET"]}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="p", **options)
    model: Model = {("x", f"k{n}"): (0, 0) for n in range(40)}
    table.upsert(rows(model))
    assert not list((tmp_path / "t").rglob("*.parquet"))
    first = {LogFileName.match(path.name) for path in log_files(tmp_path)}
    table.upsert(rows({("x", "k1"): (1, 1)}))
    table.insert(rows({("x", "new"): (1, 1)}))
    assert read(table) == {**model, ("x", "k1"): (1, 1), ("x", "new"): (1, 1)}
    now = {LogFileName.match(path.name) for path in log_files(tmp_path)}
    assert {(name.file_id, name.instant_time) for name in now if name} == {
        (name.file_id, name.instant_time) for name in first if name
    }
    plain = lakeformat.open(tmp_path / "t")  # AUTO detects buckets from log files alone.
    plain.upsert(rows({("x", "k2"): (2, 2)}))
    assert read(plain)["x", "k2"] == (2, 2)


def test_deleted_key_that_is_reinserted_is_stored_once(tmp_path: Path) -> None:
    options = {**MERGE_ON_READ, "hoodie.datasource.insert.dup.policy": "drop"}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="p", **options)
    table.insert(rows({("x", "a"): (0, 0), ("x", "b"): (0, 0)}))
    table.delete(rows({("x", "a"): (0, 0)}).select(["id", "p"]))
    table.insert(rows({("x", "a"): (1, 1), ("x", "b"): (1, 1)}))
    assert read(table) == {("x", "a"): (1, 1), ("x", "b"): (0, 0)}
    table.upsert(rows({("x", "a"): (2, 2)}))
    assert read(table)["x", "a"] == (2, 2)


def make_two_slices(folder: Path, version: int, **options: object) -> tuple[Table, Model]:
    """Create a table with two slices: one has a base file and log files, the other has no log files."""
    made = {**MERGE_ON_READ, "hoodie.write.table.version": version, "hoodie.parquet.small.file.limit": 0, **options}
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="p", ordering="ts", **made)
    model: Model = {("x", f"k{n}"): (0, 5) for n in range(9)} | {("y", f"k{n}"): (0, 5) for n in range(9)}
    table.bulk_insert(rows(model))
    newer: Model = {("x", "k1"): (1, 6), ("x", "k2"): (1, 6)}
    table.upsert(rows(newer))
    table.delete(rows({("x", "k3"): (0, 0)}).select(["id", "p"]))
    return table, {key: row for key, row in (model | newer).items() if key != ("x", "k3")}


@pytest.mark.parametrize("version", [6, 9])
def test_statements_see_the_merged_rows(version: int, tmp_path: Path) -> None:
    table, model = make_two_slices(tmp_path, version)
    bases = set((tmp_path / "t").rglob("*.parquet"))
    assert table.update({"v": 7}, where="v = 1 or (p = 'y' and id = 'k4')").report["rows"]["updated"] == 3
    model |= {("x", "k1"): (7, 6), ("x", "k2"): (7, 6), ("y", "k4"): (7, 5)}
    assert read(table) == model
    assert table.delete(where="v = 7 and id = 'k2'").report["rows"]["deleted"] == 1
    del model["x", "k2"]
    assert read(table) == model
    source = rows({("x", "k1"): (8, 9), ("x", "k3"): (8, 9), ("x", "k4"): (0, 0), ("y", "k5"): (8, 9)})
    merge = table.merge(source).when_matched_delete("source.ts = 0").when_matched_update(["v", "ts"])
    merge.when_not_matched_insert().execute()
    del model["x", "k4"]
    model |= {("x", "k1"): (8, 9), ("x", "k3"): (8, 9), ("y", "k5"): (8, 9)}
    assert read(table) == model
    assert set((tmp_path / "t").rglob("*.parquet")) == bases


@pytest.mark.parametrize("version", [6, 9])
def test_change_that_log_files_cannot_express_writes_a_base_file(version: int, tmp_path: Path) -> None:
    table, model = make_two_slices(tmp_path, version)
    table.update({"ts": 2}, where="id = 'k1'")  # Readers would keep the greater value.
    model |= {("x", "k1"): (1, 2), ("y", "k1"): (0, 2)}
    assert read(table) == model
    table.delete(rows({("y", "k2"): (0, 0)}).select(["id", "p"]))
    table.upsert(rows({("y", "k2"): (3, 1)}))  # The base file's older row would become visible again.
    assert read(table) == model | {("y", "k2"): (3, 1)}


@pytest.mark.parametrize("version", [6, 9])
def test_merge_insert_is_not_hidden_by_deleted_versions_with_greater_values(version: int, tmp_path: Path) -> None:
    table, model = make_two_slices(tmp_path, version)
    table.merge(rows({("x", "k3"): (4, 1)})).when_not_matched_insert().execute()  # The base file has (0, 5).
    model |= {("x", "k3"): (4, 1)}
    assert read(table) == model
    marked = rows({("x", "k5"): (0, 8)}).append_column("_hoodie_is_deleted", pa.array([True]))
    table.upsert(marked)
    del model["x", "k5"]
    assert read(table) == model
    fresh = rows({("x", "k5"): (1, 7)}).append_column("_hoodie_is_deleted", pa.array([False]))
    table.merge(fresh).when_not_matched_insert().execute()
    assert read(table) == model | {("x", "k5"): (1, 7)}


def test_named_columns_and_mergers_are_merged_before_they_are_written(tmp_path: Path) -> None:
    table, model = make_two_slices(tmp_path, 6)
    table.upsert(rows({("x", "k1"): (9, 9), ("x", "k5"): (9, 9)}).drop_columns(["v"]), partial_update=["ts"])
    model |= {("x", "k1"): (1, 9), ("x", "k5"): (0, 9)}
    assert read(table) == model
    table.upsert(rows({("x", "k1"): (1, 9), ("x", "k6"): (4, 9)}), merger=added)
    assert read(table) == model | {("x", "k1"): (2, 9), ("x", "k6"): (4, 9)}


def added(stored: pa.Table, incoming: pa.Table) -> pa.Table:
    at = incoming.schema.get_field_index("v")
    return incoming.set_column(at, "v", pc.add(stored.column("v"), incoming.column("v")))
