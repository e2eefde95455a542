"""INT96, in which Spark, Hive and Impala may store timestamps, is a moment in UTC, from the year 1 to 9999."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakeformat
from lakeformat.cli.app import app

_UTC = pa.timestamp("us", "UTC")
_WHEN = [
    dt.datetime(2024, 2, 29, 6, 2, 3, 456789, dt.timezone.utc),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.timezone.utc),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc),
    None,
]


def make_rows(first: int) -> pa.Table:
    """Return four rows with moments at the top and inside of each nested type."""
    return pa.table(
        {
            "id": pa.array(range(first, first + 4), pa.int64()),
            "t": pa.array(_WHEN, _UTC),
            "s": pa.array([{"t": when, "n": 1} for when in _WHEN], pa.struct([("t", _UTC), ("n", pa.int32())])),
            "l": pa.array([[when] for when in _WHEN], pa.list_(pa.field("element", _UTC))),
            "m": pa.array([[("k", when)] for when in _WHEN], pa.map_(pa.string(), _UTC)),
        }
    )


ROWS = make_rows(0)


def write_plain(path: Path, rows: pa.Table = ROWS) -> Path:
    """Write the rows with INT96, and without the Arrow schema, which other writers do not store."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, store_schema=False)
    return path


def store_as_int96(table: Path, *, forgotten: str = "") -> None:
    """Store a table's one file with INT96, and its commit as another writer's. The key ``forgotten`` is left out."""
    (file,), (commit,) = table.glob("*.parquet"), [*table.glob(".hoodie/*commit")]
    size = file.stat().st_size
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(file).schema.column(6).physical_type == "INT96"
    written = json.loads(commit.read_text().replace(str(size), str(file.stat().st_size)))
    extra = {
        key: text for key, text in written["extraMetadata"].items() if key not in {"lakeformat.checksum", forgotten}
    }
    commit.write_text(json.dumps({**written, "extraMetadata": extra}))


def read(table: lakeformat.Table, **named: Any) -> pa.Table:
    return table.to_arrow(columns=ROWS.schema.names, **named).sort_by("id")


def test_adopted_moments_are_in_utc_also_inside_other_types(tmp_path: Path) -> None:
    write_plain(tmp_path / "t/a.parquet")
    pq.write_table(make_rows(4), tmp_path / "t/b.parquet")
    adopted = lakeformat.adopt(tmp_path / "t", record_key=["id"], ordering="t")
    assert read(adopted).equals(pa.concat_tables([ROWS, make_rows(4)]))
    assert read(adopted, where="t = timestamp '9999-12-31 23:59:59.999999'").column("id").to_pylist() == [1, 5]


def test_command_line_converts_and_writes_files_with_moments(tmp_path: Path) -> None:
    plain, more = write_plain(tmp_path / "t/a.parquet").parent, write_plain(tmp_path / "more.parquet", make_rows(4))
    for words in (
        ["convert", plain, "--record-key", "id"],
        ["upsert", plain, more],
        ["create", tmp_path / "new", "--like", more, "--record-key", "id"],
        ["upsert", tmp_path / "new", more],
    ):
        assert CliRunner().invoke(app, [str(word) for word in words]).exit_code == 0
    assert read(lakeformat.open(plain)).equals(pa.concat_tables([ROWS, make_rows(4)]))
    assert read(lakeformat.open(tmp_path / "new")).equals(make_rows(4))


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_base_files_with_int96_are_read_merged_and_rewritten(kind: str, tmp_path: Path) -> None:
    options = {"hoodie.table.type": kind, "hoodie.metadata.enable": False, "hoodie.write.table.version": 6}
    lakeformat.create(tmp_path / "t", ROWS, record_key="id", ordering="t", insert=True, **options)
    store_as_int96(tmp_path / "t")
    table = lakeformat.open(tmp_path / "t")
    assert read(table).equals(ROWS)
    for where in ("t > timestamp '9000-01-01'", "s.t > timestamp '9000-01-01'", "year(t) = 9999"):
        assert read(table, where=where).equals(ROWS.slice(1, 1))
    assert pa.table(table.to_pyarrow_dataset().to_table(columns=ROWS.schema.names)).equals(ROWS)
    table.upsert(make_rows(3))
    want = pa.concat_tables([ROWS.slice(0, 3), make_rows(3)])
    assert read(table).equals(want)
    for rewrite in (table.compact if kind == "MERGE_ON_READ" else table.cluster,):
        rewrite()
        assert read(table).equals(want)


def test_schema_that_only_the_files_have_is_taken_from_them(tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", ROWS, record_key="id", insert=True, **{"hoodie.write.table.version": 6})
    store_as_int96(tmp_path / "t", forgotten="schema")
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    properties.write_text(re.sub("hoodie.table.create.schema=.*\n", "", properties.read_text()))
    assert read(lakeformat.open(tmp_path / "t")).equals(ROWS)
