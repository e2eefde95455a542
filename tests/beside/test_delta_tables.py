"""Kinds of tables beside which a Delta log lies, and what is refused. The oracles are deltalake and polars."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import lakeformat
from lakeformat import SyncError, Table, UnsupportedTableError
from tests.helpers.delta_reader import as_texts, assert_delta_shows, delta_rows
from tests.helpers.every_type import ROWS, TYPES
from tests.helpers.fixture_tables import unpack
from tests.helpers.tables import a_batch, a_schema

SCHEMA: Final = a_schema(id="int64", v="string")
FOLLOWED: Final = {"lakeformat.beside": "delta"}


def new_table(folder: Path, **options: Any) -> Table:
    return lakeformat.create(folder / "t", SCHEMA, **{"record_key": "id", **FOLLOWED, **options})


def test_all_types_are_shown_and_filters_find_the_same_rows(tmp_path: Path) -> None:
    table = lakeformat.create(
        tmp_path / "t", TYPES, record_key="id", **FOLLOWED, **{"hoodie.parquet.small.file.limit": 0}
    )
    for row in ROWS:
        table.insert(pa.Table.from_pylist([row], TYPES))
    assert_delta_shows(table)
    rows = table.to_arrow()
    delta, frame = DeltaTable(table.location).to_pyarrow_dataset(), pl.scan_delta(table.location)
    for name in ("i", "f", "d", "n", "wide", "t", "flag", "day", "at", "local"):
        value = next(each for each in rows[name] if each.is_valid)
        chosen = pc.field(name) >= value
        assert as_texts(delta.to_table(filter=chosen)) == as_texts(rows.filter(chosen)), name
        frames = frame.filter(pl.col(name) >= pl.lit(value.as_py(), pl.Series(rows[name]).dtype)).collect()
        assert frames["id"].sort().to_list() == sorted(
            pl.from_arrow(rows).filter(pl.col(name) >= pl.lit(value.as_py(), pl.Series(rows[name]).dtype))["id"]
        ), name


@pytest.mark.parametrize(
    "name", ["hudi_v6/cow_all_types", "hudi_v6/cow_two_level_lists", "hudi_v6/cow_schema_evolved",
             "own_kinds/v6_dropped_cow", "own_kinds/v6_virtual_cow", "own_kinds/v9_altered_cow",
             "hudi_v8_v9/v9_cow_event_time_partitioned"],
)  # fmt: skip
def test_tables_of_hudi_are_shown(tmp_path: Path, name: str) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    table.sync("delta")
    assert_delta_shows(table, with_polars=True)


def test_dropped_partition_columns_have_the_values_of_the_folders(tmp_path: Path) -> None:
    table = lakeformat.open(unpack("own_kinds/v6_dropped_cow_date", tmp_path))
    table.sync("delta")
    assert_delta_shows(table)
    assert DeltaTable(table.location).metadata().partition_columns == list(table.config.partition_fields)


def test_renamed_columns_are_refused_by_name_until_the_files_are_written_again(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"lakeformat.beside.fail_on_error": True})
    table.insert(a_batch(SCHEMA, id=[1, 2], v="a"))
    before = delta_rows(table.location)
    with pytest.raises(SyncError, match=r"IS visible.*columns w from before an alteration"):
        table.alter().rename("v", "w").execute()
    assert delta_rows(table.location) == before
    table.cluster(by="id")
    assert_delta_shows(table, with_polars=True)
    table.alter().drop("w").execute()
    assert_delta_shows(table, with_polars=True)


def test_widened_columns_are_shown_if_readers_widen_them_as_hudi_does(tmp_path: Path) -> None:
    schema = a_schema(id="int64", n="int32", f="float32")
    table = lakeformat.create(tmp_path / "t", schema, record_key="id")
    table.insert(a_batch(schema, id=[1], n=1, f=1.1))
    table.sync("delta")
    table.alter().retype("n", "int64").execute()
    table.sync("delta")
    table.insert(a_batch(a_schema(id="int64", n="int64", f="float32"), id=[2], n=2**40, f=1.1))
    table.sync("delta")
    assert_delta_shows(table, with_polars=True)
    table.alter().retype("f", "float64").execute()
    with pytest.raises(UnsupportedTableError, match="column f as float, not double"):
        table.sync("delta")
    table.cluster(by="id")
    table.sync("delta")
    assert_delta_shows(table, with_polars=True)


def test_a_log_of_another_program_is_refused_until_it_is_replaced(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(a_batch(SCHEMA, id=[1], v="a"))
    write_deltalake(table.location, a_batch(SCHEMA, id=[9], v="foreign"), mode="append")
    result = table.insert(a_batch(SCHEMA, id=[2], v="b"))
    assert "version 1 of _delta_log was written by delta-rs" in result.report["steps"][-1]["error"]
    assert table.count() == 2
    with pytest.raises(SyncError, match="replace=True"):
        table.sync("delta")
    table.sync("delta", replace=True)
    assert_delta_shows(table)
    assert DeltaTable(table.location).version() == 0


def test_a_damaged_log_fails_no_commit_and_repair_makes_it_anew(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for key in range(3):
        table.insert(a_batch(SCHEMA, id=[key], v="a"))
    (tmp_path / "t/_delta_log/00000000000000000001.json").unlink()
    result = table.insert(a_batch(SCHEMA, id=[7], v="b"))
    assert "lacks a version after" in result.report["steps"][-1]["error"]
    assert table.count() == 4
    (finding,) = table.check()
    assert "sync('delta', replace=True)" in finding.cure
    table.repair()
    assert_delta_shows(table)
