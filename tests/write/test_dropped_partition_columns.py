"""Tables whose files hold no partition columns (``…drop.partition.columns=true``) are written. Oracle: a dict."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError, SchemaMismatchError, Table, UnsupportedTableError
from tests.helpers.fixture_tables import names, read_expectations, unpack

Row = dict[str, Any]
Model = dict[Any, Row]
TABLES: Final = [name for name in names("hudi_rest") if name.endswith("_dropped_partition_columns")]
DROP: Final = {"hoodie.datasource.write.drop.partition.columns": True}
SCHEMA: Final = pa.schema(
    {"day": pa.date32(), "id": pa.int64(), "part": pa.int32(), "ts": pa.int64(), "v": pa.string()}
)


def model_of(rows: Iterable[Row]) -> Model:
    return {row["id"]: row for row in rows}


def check(table: Table, model: Model) -> None:
    """Compare all rows with the model, read as another process would, also through a filter on the partition."""
    table = lakeformat.open(table.path)
    rows = table.to_arrow().to_pylist()
    assert len(rows) == len(model)
    assert model_of(rows) == model
    assert table.count() == len(model)
    for part in {row["part"] for row in model.values()}:
        where = f"part = {part!r}" if part is not None else "part is null"
        assert {row["id"] for row in table.to_arrow(["id"], where=where).to_pylist()} == {
            key for key, row in model.items() if row["part"] == part
        }


def check_files(path: Path, known: set[Path], *columns: str) -> None:
    """Check that no new base file or block of a log file holds the columns, and that Hudi's schemas know them."""
    added = [file for file in path.rglob("*.parquet") if file not in known and ".hoodie" not in file.parts]
    assert added
    for file in added:
        footer = pq.read_metadata(file)
        assert not {*columns}.intersection(footer.schema.to_arrow_schema().names)
        assert not [name for name in columns if f'"{name}"'.encode() in footer.metadata[b"parquet.avro.schema"]]
    for log in (file for file in path.rglob(".*.log.*") if file not in known and ".hoodie" not in file.parts):
        assert not [name for name in columns if f'"{name}"'.encode() in log.read_bytes()]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_hudi_takes_every_write(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    facts, known = read_expectations(name), {*path.rglob("*.parquet"), *path.rglob(".*.log.*")}
    table = lakeformat.open(path)
    columns = table.schema.names
    model = model_of({column: row[column] for column in columns} for row in facts["snapshot"])
    check(table, model)

    def row(number: int, part: str | None, ts: int) -> Row:
        return {"id": number, "name": f"n{number}", "part": part, "ts": ts}

    newer = [{**one, "ts": one["ts"] + 1000} for one in [*model.values()][:2]] + [row(90, "a", 7), row(91, "new", 7)]
    table.upsert([*newer, {**[*model.values()][2], "ts": 0}, row(99, None, 7)])
    model.update(model_of([*newer, row(99, None, 7)]))
    check(table, model)
    check_files(path, known, "part")
    table.delete([newer[0], newer[3]])
    del model[newer[0]["id"]], model[newer[3]["id"]]
    table.insert([row(93, "b", 1), row(94, "z", 1)])
    table.bulk_insert([row(95, "z", 1)])
    model.update(model_of([row(93, "b", 1), row(94, "z", 1), row(95, "z", 1)]))
    check(table, model)
    table.update({"ts": 5000}, where="part = 'b' and id = 93")
    model[93]["ts"] = 5000
    table.delete(where="part = 'z' and id = 94")
    del model[94]
    table.merge([row(95, "z", 8000), row(96, "z", 1)]).when_matched_update().when_not_matched_insert().execute()
    model.update(model_of([row(95, "z", 8000), row(96, "z", 1)]))
    check(table, model)
    if "_mor_" in name:
        table.compact()
        check(table, model)
    table.cluster()
    check(table, model)
    table.upsert([row(96, "z", 9000)])
    model.update(model_of([row(96, "z", 9000)]))
    check(table, model)
    check_files(path, known, "part")
    assert not table.check()
    table.insert_overwrite([row(97, "a", 1)])
    check(table, model := model_of([*(one for one in model.values() if one["part"] != "a"), row(97, "a", 1)]))
    table.overwrite([row(98, "a", 1)])
    check(table, model_of([row(98, "a", 1)]))
    assert len(model) > 1


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_values_keep_their_types(kind: str, version: int, tmp_path: Path) -> None:
    path, known = tmp_path / "t", set[Path]()
    rows = [{"day": date(2024, 1, 1 + n % 2), "id": n, "part": n % 3 or None, "ts": n, "v": f"v{n}"} for n in range(12)]
    options = {"table_type": kind, "hoodie.write.table.version": version, "hive_style": True, **DROP}
    roles = {"record_key": "id", "partition_by": "part,day", "ordering": "ts"}
    table = lakeformat.create(path, pa.Table.from_pylist(rows, SCHEMA), insert=True, **roles, **options)
    model = model_of(rows)
    assert lakeformat.open(path).schema.equals(SCHEMA)
    check(table, model)
    update = [{**rows[n], "v": "u", "ts": 99} for n in range(0, 12, 2)]
    table.upsert(pa.Table.from_pylist(update, SCHEMA))
    model.update(model_of(update))
    table.delete(where="part = 2 and day = date'2024-01-01'")
    model = {key: row for key, row in model.items() if (row["part"], row["day"]) != (2, date(2024, 1, 1))}
    table.insert(pa.Table.from_pylist([{**rows[0], "id": 50}], SCHEMA))
    model[50] = {**rows[0], "id": 50}
    check(table, model)
    if kind == "MERGE_ON_READ":
        table.compact()
    table.cluster(by=["v"])
    check(table, model)
    assert lakeformat.open(path).schema.equals(SCHEMA)
    check_files(path, known, "part", "day")
    assert not table.check()


def test_what_readers_could_not_give_back_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    rows, roles = pa.table({"id": [1], "x": [1.5], "p": ["a/b"], "q": ["c"]}), {"record_key": "id"}
    with pytest.raises(SchemaMismatchError, match="'x' is double, and folder names do not give its values back"):
        lakeformat.create(tmp_path / "t", rows, partition_by="x", **roles, **DROP)
    with pytest.raises(UnsupportedTableError, match="needs other ordering and virtual key fields than p"):
        lakeformat.create(tmp_path / "t", rows, partition_by="p", ordering="p", **roles, **DROP)
    custom = {"hoodie.datasource.write.keygenerator.type": "CUSTOM"}
    with pytest.raises(UnsupportedTableError, match="and the simple or complex key generator"):
        lakeformat.create(tmp_path / "t", rows, partition_by="p:SIMPLE", **roles, **DROP, **custom)
    assert not (tmp_path / "t").exists()
    table = lakeformat.create(tmp_path / "t", rows.schema, partition_by="p,q", **roles, **DROP)
    with pytest.raises(InvalidInputError, match="'a/b/c' does not give the values of p, q"):
        table.insert(rows)
    with pytest.raises(InvalidOptionError, match="contradicts 'true'"):
        lakeformat.open(tmp_path / "t", **dict.fromkeys(DROP, False)).insert(rows)
    assert not lakeformat.open(tmp_path / "t").count()


@pytest.mark.parametrize("index", ["GLOBAL_SIMPLE", "RECORD_INDEX", "BUCKET"])
def test_indexes_move_and_find_rows(index: str, tmp_path: Path) -> None:
    rows = [{"id": n, "v": "n", "part": "ab"[n % 2]} for n in range(6)]
    options: dict[str, Any] = {
        "hoodie.index.type": index,
        "table_type": "MERGE_ON_READ",
        "hoodie.write.table.version": 9,
        **DROP,
    }
    lakeformat.create(tmp_path / "t", rows, insert=True, record_key="id", partition_by="part", **options)
    table = lakeformat.open(tmp_path / "t", **options)
    moved = {**rows[1], "v": "u", "part": "b" if index == "BUCKET" else "a"}
    found = {**moved, "part": "a" if index == "GLOBAL_SIMPLE" else "b"}  # A record index does not move rows by default.
    table.upsert([moved, {"id": 9, "v": "new", "part": "a"}])
    table.delete([rows[2]])
    kept = [one for one in rows if one["id"] not in {1, 2}]
    check(table, model_of([*kept, found, {"id": 9, "v": "new", "part": "a"}]))
