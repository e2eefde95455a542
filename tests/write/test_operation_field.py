"""Tables whose files have a column of operations (``hoodie.allow.operation.metadata.field``) are written.

Oracle: a dict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import Table, UnsupportedTableError
from lakeformat.model.record import META_COLUMNS, OPERATION
from tests.helpers.fixture_tables import names, read_expectations, unpack
from tests.read.test_own_kinds import append_log

Row = dict[str, Any]
Model = dict[Any, Row]
TABLES: Final = [name for name in names("hudi_rest") if name.endswith("_operation_field")]
OPTION: Final = {"hoodie.allow.operation.metadata.field": True}


def rows_of(table: Table) -> list[Row]:
    """Read as another process would."""
    rows: list[Row] = lakeformat.open(table.path).to_arrow().to_pylist()
    return rows


def check(table: Table, model: Model) -> None:
    rows = [{name: value for name, value in row.items() if name != OPERATION} for row in rows_of(table)]
    assert {row["id"]: row for row in rows} == model
    assert len(rows) == len(model)


def columns_of_new_files(path: Path, known: set[Path]) -> set[tuple[str, ...]]:
    """Return the first columns of the new base files, each as often as they differ."""
    added = [file for file in path.rglob("*.parquet") if file not in known and ".hoodie" not in file.parts]
    return {tuple(pq.read_schema(file).names[:7]) for file in added}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_hudi_takes_every_write_and_keeps_the_column(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    known = set(path.rglob("*.parquet"))
    table = lakeformat.open(path, **OPTION)
    columns = [column for column in table.schema.names if column != OPERATION]
    model = {row["id"]: {column: row[column] for column in columns} for row in read_expectations(name)["snapshot"]}

    def row(number: int, part: str, ts: int) -> Row:
        return {"id": number, "name": f"n{number}", "part": part, "ts": ts}

    first, *_, last = model.values()
    newer = [{**first, "ts": 1000}, row(90, "a", 7), row(91, "new", 7)]
    table.upsert([{OPERATION: "D", **one} for one in newer] if OPERATION in table.schema.names else newer)
    model |= {one["id"]: one for one in newer}
    check(table, model)
    table.upsert([{**last, "ts": 0}])  # It comes late.
    table.delete([newer[1]])
    del model[90]
    table.insert([row(93, "b", 1)])
    table.bulk_insert([row(94, "z", 1)])
    model |= {93: row(93, "b", 1), 94: row(94, "z", 1)}
    check(table, model)
    table.update({"ts": 5000}, where="id = 93")
    model[93]["ts"] = 5000
    table.merge([row(94, "z", 8000), row(95, "z", 1)]).when_matched_update().when_not_matched_insert().execute()
    model |= {94: row(94, "z", 8000), 95: row(95, "z", 1)}
    check(table, model)
    if "_mor_" in name:
        table.compact()
    table.cluster()
    check(table, model)
    assert columns_of_new_files(path, known) == {(*META_COLUMNS, OPERATION, "id")}
    assert {row[OPERATION] for row in rows_of(table) if OPERATION in row} <= {None}
    assert not table.check()
    table.overwrite([row(98, "a", 1)])
    check(table, {98: row(98, "a", 1)})


def test_rewritten_files_keep_the_operations_of_rows(tmp_path: Path) -> None:
    folder = unpack("own_kinds/v9_operation_mor", tmp_path)
    table = lakeformat.open(folder)
    before = table.to_arrow(meta_columns=True)
    base = next(file for file in table.snapshot().files if pq.read_metadata(folder / file.path).num_rows == 3)
    rows = pq.read_table(folder / base.path, partitioning=None)
    append_log(folder, base, rows.set_column(5, OPERATION, pa.array(["U", "+U", "I"])))
    operations = dict(zip(rows["id"].to_pylist(), ["U", "+U", "I"], strict=True))
    table = lakeformat.open(folder)
    wanted = {row["id"]: operations.get(row["id"]) for row in before.to_pylist()}
    assert {row["id"]: row[OPERATION] for row in rows_of(table)} == wanted
    table.compact()
    first = next(iter(operations))
    changed = next(row for row in rows_of(table) if row["id"] == first)
    table.upsert([{**changed, "ts": changed["ts"] + 1000}])
    wanted[first] = None
    table.compact()
    table.cluster()
    assert {row["id"]: row[OPERATION] for row in rows_of(table)} == wanted


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_new_table_gets_the_column_on_request(kind: str, tmp_path: Path) -> None:
    options = {"table_type": kind, "hoodie.write.table.version": 9}
    rows = [{"id": number, "v": "n"} for number in range(4)]
    lakeformat.create(tmp_path / "t", rows, insert=True, record_key="id", **options, **OPTION)
    table = lakeformat.open(tmp_path / "t")
    table.upsert([{"id": 1, "v": "u"}, {"id": 9, "v": "n"}])
    assert table.schema.names == [OPERATION, "id", "v"]
    check(table, {row["id"]: row for row in [*rows, {"id": 1, "v": "u"}, {"id": 9, "v": "n"}]})
    with pytest.raises(UnsupportedTableError, match="cannot be altered"):
        table.alter().rename("v", "w").execute()
