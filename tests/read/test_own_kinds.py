"""Rare kinds of tables: lakeformat reads the rows that Hudi reads, for all columns and filters."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import Table, UnsupportedTableError
from lakeformat.files.log_writer import encode_parquet_block
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, LogFileName
from lakeformat.predicate import bind, parse_where
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.session import plan_read
from lakeformat.timeline.timeline_layout import LAYOUT_2
from tests.helpers.fixture_tables import names, read_expectations, unpack
from tests.helpers.refusal import check_message
from tests.read.test_hudi_fixtures import check_same_rows

Row = dict[str, Any]

#: Tables with changes inside structs, lists and maps.
NESTED_CHANGES: Final = [name for name in names("own_kinds") if "altered" in name or "evolved_nested" in name]
KINDS: Final = [name for name in names("own_kinds") if "orc" not in name and name not in NESTED_CHANGES]
#: A table with the same history that Hudi can read, for a table that it cannot read.
SAME_HISTORY: Final = "own_kinds/v6_nested_mor"
#: Filter -> the same filter on rows that Hudi reads.
FILTERS: Final[Mapping[str, Callable[[Row], bool]]] = {
    "id = 1": lambda row: row["id"] == 1,
    "ts < 10": lambda row: row["ts"] < 10,
    "born = date'2024-01-01'": lambda row: row["born"] == "2024-01-01",
    "day = 2": lambda row: int(row["day"]) == 2,
    "reg = 'eu'": lambda row: row["reg"] == "eu",
    "reg > 'us' and id > 3": lambda row: row["reg"] == "us /a=b" and row["id"] > 3,
    "reg is null or day is null": lambda row: False,
    "_hoodie_record_key is null": lambda row: "_hoodie_record_key" not in row,
    "_hoodie_partition_path is null": lambda row: "_hoodie_partition_path" not in row,
}


def rows_of(table: Table, **asked: Any) -> list[Row]:
    meta = not table.config.has_virtual_keys
    found: list[Row] = table.to_arrow(**{"meta_columns": meta, **asked}).to_pylist(maps_as_pydicts="strict")
    return found


def adapt_filter(table: Table, where: str) -> str:
    """Return the filter for this table: a dropped column without a known type is text."""
    texts = {field.name for field in table.schema if field.type == pa.string()}
    where = where.replace("day = 2", "day = '2'") if "day" in texts else where
    return where.replace("date'", "'") if "born" in texts else where


@pytest.mark.parametrize("name", KINDS)
def test_rows_equal_those_that_hudi_reads(name: str, tmp_path: Path) -> None:
    folder, document = unpack(name, tmp_path), read_expectations(name)
    older = lakeformat.open(folder, **{"hoodie.datasource.query.type": "read_optimized"})
    check_same_rows(rows_of(older), document["read_optimized"])
    table, wanted = lakeformat.open(folder), document["snapshot"]
    if wanted == "ERROR":
        expectations = read_expectations(SAME_HISTORY)["snapshot"]
        wanted = [{name: row[name] for name in row if not name.startswith("_hoodie")} for row in expectations]
    check_same_rows(rows_of(table), wanted)
    for where, selects in FILTERS.items():
        asked, kept = adapt_filter(table, where), sorted(row["id"] for row in wanted if selects(row))
        assert sorted(row["id"] for row in rows_of(table, where=asked, columns=["id"])) == kept, where
        assert sorted(row["id"] for row in rows_of(table, where=asked, verify=True)) == kept, where


@pytest.mark.parametrize("name", NESTED_CHANGES)
def test_columns_are_found_by_their_ids_at_every_depth(name: str, tmp_path: Path) -> None:
    table, document = lakeformat.open(unpack(name, tmp_path)), read_expectations(name)
    found, wanted = rows_of(table), document["snapshot"]
    check_same_rows(found, wanted)
    older = lakeformat.open(table.uri, **{"hoodie.datasource.query.type": "read_optimized"})
    check_same_rows(rows_of(older), document["read_optimized"])
    for column in wanted[0]:
        assert [row[column] for row in rows_of(table, columns=[column])] == [row[column] for row in found]


@pytest.mark.parametrize("name", [name for name in names("own_kinds") if "altered" in name or "evolved" in name])
def test_write_to_a_table_with_column_ids_keeps_the_other_rows(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    before = {row["id"]: row for row in table.to_arrow().to_pylist()}
    changed = before[2] | {"title": "ours", "ts": 100}
    new = changed | {"id": 77}
    table.upsert([changed, new])
    table.delete(where="id = 3")
    model = {key: row for key, row in before.items() if key != 3} | {2: changed, 77: new}
    assert {row["id"]: row for row in table.to_arrow().to_pylist()} == model
    table.compact() if "mor" in name else table.cluster()
    assert {row["id"]: row for row in table.to_arrow().to_pylist()} == model
    assert not table.check()


@pytest.mark.parametrize("name", ["v6_dropped_cow", "v9_dropped_mor_nested"])
def test_filters_on_dropped_columns_leave_folders_out(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(f"own_kinds/{name}", tmp_path))
    snapshot = table.snapshot()
    paths = {path for path in snapshot.live.partitions() if path.startswith("reg=eu/")}
    full = readable_schema(snapshot.columns("here"), meta_columns=True)
    query = ReadQuery(full, bind(parse_where("reg = 'eu'"), full))
    plan = plan_read(table.context.storage, snapshot, query, split_bytes=1 << 20)
    assert {part.path.rpartition("/")[0] for split in plan.splits for part in split.parts} == paths
    assert 0 < plan.files_after_names < plan.files


def test_virtual_key_table_has_null_meta_columns_on_request(tmp_path: Path) -> None:
    table = lakeformat.open(unpack("own_kinds/v9_virtual_mor", tmp_path))
    assert not [name for name in table.to_arrow().column_names if name.startswith("_hoodie")]
    assert table.to_arrow(["_hoodie_record_key"])["_hoodie_record_key"].null_count == table.to_arrow().num_rows


def test_operation_field_in_log_rows_deletes(tmp_path: Path) -> None:
    folder = unpack("own_kinds/v9_operation_mor", tmp_path)
    table = lakeformat.open(folder)
    before = table.to_arrow(meta_columns=True)
    assert before.column_names[5] == "_hoodie_operation"
    of_file = {f: before.filter(pc.equal(before["_hoodie_file_name"], str(f.name))) for f in table.snapshot().files}
    base, rows = next((file, rows) for file, rows in of_file.items() if rows.num_rows == 3)
    append_log(folder, base, rows.set_column(5, "_hoodie_operation", pa.array(["-D", "-U", "+U"])))
    gone, half, kept = rows["id"].to_pylist()
    after = {row["id"]: row["_hoodie_operation"] for row in rows_of(table, verify=True)}
    assert after == {key: None for key in before["id"].to_pylist() if key not in {gone, half}} | {kept: "+U"}


def append_log(folder: Path, base: BaseFile, rows: pa.Table) -> None:
    """Commit a log file for the slice of a base file."""
    time, end = "20991231000000000", "20991231000000001"
    text = pq.read_metadata(folder / base.path).metadata[b"parquet.avro.schema"].decode()
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    name = str(LogFileName(base.name.file_id, time, 1, "0-1-1"))
    data = encode_parquet_block(sink.getvalue(), instant_time=time, schema=text)
    (folder / base.partition_path / name).write_bytes(data)
    path, before = f"{base.partition_path}/{name}", base.name.instant_time
    stat = WriteStat(base.name.file_id, path, base.partition_path, before, 3, num_updates=3, size_bytes=len(data))
    commit = LAYOUT_2.encode_commit(CommitMetadata("UPSERT", {base.partition_path: (stat,)}, {"schema": text}))
    for state in ("requested", "inflight"):
        (folder / LAYOUT_2.folder / f"{time}.deltacommit.{state}").write_bytes(b"")
    (folder / LAYOUT_2.folder / f"{time}_{end}.deltacommit").write_bytes(commit)


def test_orc_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError) as caught:
        lakeformat.open(unpack("own_kinds/v6_orc_cow", tmp_path)).to_arrow()
    check_message(
        caught, UnsupportedTableError, "hoodie.properties", "hoodie.table.base.file.format=ORC", "use Apache Hudi"
    )


@pytest.mark.parametrize(
    "line",
    [
        "hoodie.table.base.file.format=HFILE",
        "hoodie.table.multiple.base.file.formats.enable=true",
    ],
)
def test_other_formats_are_refused_by_name(line: str, tmp_path: Path) -> None:
    folder = unpack("own_kinds/v9_dropped_mor_nested", tmp_path)
    properties = folder / ".hoodie" / "hoodie.properties"
    kept = [each for each in properties.read_text().splitlines() if each.partition("=")[0] != line.partition("=")[0]]
    properties.write_text("\n".join([*kept, line]))
    with pytest.raises(UnsupportedTableError) as caught:
        lakeformat.open(folder).to_arrow()
    check_message(caught, UnsupportedTableError, "hoodie.properties", line.partition("=")[0], "use Apache Hudi")


@pytest.mark.parametrize("name", [name for name in names("own_kinds") if "dropped" in name])
def test_write_to_a_table_without_partition_columns_keeps_the_other_rows(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    model = {row["id"]: row for row in table.to_arrow().to_pylist()}
    first, *_, last = model.values()
    table.upsert([changed := {**first, "ts": 10_000}, new := {**first, "id": 77}])
    table.delete([last])
    del model[last["id"]]
    model |= {first["id"]: changed, 77: new}
    table.compact() if "mor" in name else table.cluster()
    assert {row["id"]: row for row in lakeformat.open(table.path).to_arrow().to_pylist()} == model
    assert not table.check()
