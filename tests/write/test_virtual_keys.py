"""Tables that store no record keys (``hoodie.populate.meta.fields=false``) are written. Oracle: a dict."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import InvalidOptionError, Table, UnsupportedTableError
from lakeformat.model.record import META_COLUMNS
from tests.helpers.fixture_tables import names, read_expectations, unpack

TABLES = [name for name in names("hudi_rest") if "_virtual_" in name]
Row = dict[str, Any]
Model = dict[tuple[Any, ...], Row]


def model_of(rows: Iterable[Row], keys: list[str]) -> Model:
    return {tuple(row[key] for key in keys): row for row in rows}


def check(table: Table, model: Model, keys: list[str]) -> None:
    """Compare all rows with the model, and read again as another process would."""
    rows = lakeformat.open(table.path).to_arrow().to_pylist()
    assert len(rows) == len(model)
    assert model_of(rows, keys) == model


def check_files(path: Path, known: set[Path]) -> None:
    """Check that new base files look like Hudi's: no value in the meta columns, and no keys in the footer."""
    added = [file for file in path.rglob("*.parquet") if file not in known and ".hoodie" not in file.parts]
    assert added
    for file in added:
        table, metadata = pq.read_table(file, partitioning=None), pq.read_metadata(file).metadata
        assert table.schema.names[:5] == list(META_COLUMNS)
        assert all(table.column(name).null_count == table.num_rows for name in META_COLUMNS)
        assert {key.decode() for key in metadata} & {"hoodie_min_record_key", "org.apache.hudi.bloomfilter"} == set()
        assert not [key for key in metadata if b"bloom" in key or b"record_key" in key]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_hudi_takes_every_write(name: str, tmp_path: Path) -> None:
    facts = read_expectations(name)
    path = unpack(name, tmp_path)
    known, keys = set(path.rglob("*.parquet")), facts["record_key"].split(",")
    table = lakeformat.open(path)
    model = model_of(facts["snapshot"], keys)
    check(table, model, keys)

    def row(number: int, part: str, ts: int) -> Row:
        return {"id": number, "name": f"n{number}", "part": part, "ts": ts}

    newer = [{**one, "ts": one["ts"] + 1000} for one in list(model.values())[:3]] + [row(90, "a", 7), row(91, "new", 7)]
    late = {**list(model.values())[3], "ts": 0}
    table.upsert([*newer, late])
    model.update(model_of(newer, keys))
    check(table, model, keys)
    check_files(path, known)

    table.delete([newer[0], newer[3]])
    del model[tuple(newer[0][key] for key in keys)], model[tuple(newer[3][key] for key in keys)]
    check(table, model, keys)

    again = {**newer[0], "ts": 1}
    table.upsert([again, row(92, "a", 5)])
    model.update(model_of([again, row(92, "a", 5)], keys))
    check(table, model, keys)

    table.insert([row(93, "b", 1), row(94, "z", 1)])
    model.update(model_of([row(93, "b", 1), row(94, "z", 1)], keys))
    table.bulk_insert([row(95, "z", 1)])
    model.update(model_of([row(95, "z", 1)], keys))
    check(table, model, keys)

    table.update({"ts": 5000}, where="id = 93")
    model[tuple(row(93, "b", 1)[key] for key in keys)]["ts"] = 5000
    table.delete(where="id = 94")
    del model[tuple(row(94, "z", 1)[key] for key in keys)]
    table.merge([row(95, "z", 8000), row(96, "z", 1)]).when_matched_update().when_not_matched_insert().execute()
    model.update(model_of([row(95, "z", 8000), row(96, "z", 1)], keys))
    check(table, model, keys)

    if "_mor_" in name:
        table.compact()
        check(table, model, keys)
    table.cluster()
    check(table, model, keys)
    table.upsert([row(96, "z", 9000)])
    model.update(model_of([row(96, "z", 9000)], keys))
    check(table, model, keys)
    check_files(path, known)
    assert not list(table.check())
    if "nonpart" not in name:
        table.insert_overwrite([row(97, "a", 1)])
        model = {key: one for key, one in model.items() if one["part"] != "a"} | model_of([row(97, "a", 1)], keys)
        check(table, model, keys)
    table.overwrite([row(98, "a", 1)])
    check(table, model_of([row(98, "a", 1)], keys), keys)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", ["AUTO", "SIMPLE", "BLOOM", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "BUCKET", "INMEMORY"])
def test_every_index_but_the_record_index_finds_the_keys(index: str, kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hoodie.populate.meta.fields": False, "hoodie.index.type": index, "table_type": kind}
    rows = [{"id": number, "name": "n", "part": "ab"[number % 2]} for number in range(6)]
    path, roles = tmp_path / "t", {"record_key": "id", "partition_by": "part"}
    lakeformat.create(path, rows, insert=True, if_exists="error", **roles, **options)
    table = lakeformat.open(path, **options)
    table.upsert([{**rows[1], "name": "u"}, {"id": 9, "name": "new", "part": "a"}])
    table.delete([rows[2]])
    expected = [*(one for one in rows if one["id"] not in {1, 2}), {**rows[1], "name": "u"}]
    check(table, model_of([*expected, {"id": 9, "name": "new", "part": "a"}], ["id"]), ["id"])


def test_what_cannot_be_made_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    rows, off = [{"id": 1, "name": "n", "part": "a"}], {"hoodie.populate.meta.fields": False}
    with pytest.raises(UnsupportedTableError, match="needs record key fields and the simple"):
        lakeformat.create(tmp_path / "keyless", rows, **off)
    table = lakeformat.create(tmp_path / "t", rows, record_key="id", insert=True, if_exists="error", **off)
    with pytest.raises(InvalidOptionError, match="contradicts 'false'"):
        lakeformat.open(tmp_path / "t", **{"hoodie.populate.meta.fields": True}).upsert(rows)
    with pytest.raises(InvalidOptionError, match="Hudi leaves the record index empty"):
        lakeformat.open(tmp_path / "t", **{"hoodie.index.type": "RECORD_INDEX"}).upsert(rows)
    check(table, model_of(rows, ["id"]), ["id"])
    assert not (tmp_path / "keyless").exists()
