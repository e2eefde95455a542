"""The most common mistakes of users are refused at once, in one line.

The line says what exists and what to write instead.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat import (
    InstantNotAvailableError,
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    TableNotFoundError,
)

ROOT = Path(__file__).parents[2]
ROWS = [{"id": at, "part": "ab"[at % 2], "ts": 1, "x": at / 2} for at in range(6)]
Act = Callable[[lakeformat.Table], object]


@pytest.fixture
def table(tmp_path: Path) -> lakeformat.Table:
    table = lakeformat.create(tmp_path / "t", ROWS, record_key="id", partition_by="part", ordering="ts")
    table.insert(ROWS)
    return table


MISTAKES: dict[str, tuple[Act, type[Exception], str]] = {
    "a condition's name misspelt": (
        lambda t: t.to_arrow(wher="id = 1"),
        InvalidOptionError,
        "'wher'; did you mean 'where'?",
    ),
    "another library's condition": (
        lambda t: t.to_pandas(filters="id = 1"),
        InvalidOptionError,
        "did you mean 'where'?",
    ),
    "another library's version": (lambda t: t.to_arrow(version=0), InvalidOptionError, "did you mean 'as_of'?"),
    "another library's columns": (
        lambda t: t.read(selected_fields=["id"]),
        InvalidOptionError,
        "did you mean 'columns'?",
    ),
    "a read argument of nobody's": (lambda t: t.to_batches(zzz=1), InvalidOptionError, "there are columns, where"),
    "a statement's condition misspelt": (
        lambda t: t.update({"x": 0.0}, were="id = 1"),
        InvalidOptionError,
        "mean 'where'?",
    ),
    "a delete's condition misspelt": (lambda t: t.delete(ROWS, were="id = 1"), InvalidOptionError, "mean 'where'?"),
    "an option given to a write": (
        lambda t: t.upsert(ROWS, index="BLOOM"),
        InvalidOptionError,
        "lakeformat.open(path",
    ),
    "an unknown index": (lambda t: reopen(t, **{"hoodie.index.type": "HASH"}), InvalidOptionError, "write one of"),
    "an option under half its name": (
        lambda t: reopen(t, index="BLOOM"),
        InvalidOptionError,
        "mean 'hoodie.index.type'?",
    ),
    "a column misspelt": (
        lambda t: t.to_arrow(["prt"]),
        InvalidInputError,
        "unknown column 'prt'; did you mean 'part'?",
    ),
    "a column of nobody's": (lambda t: t.to_arrow(["city"]), InvalidInputError, "the table has id, part, ts, x"),
    "text without quotes": (
        lambda t: t.to_arrow(where="part = a"),
        InvalidInputError,
        "column 'a' is not in the table; a text needs quotes",
    ),
    "a number in quotes": (
        lambda t: t.to_arrow(where="id = '1a'"),
        InvalidInputError,
        "write a number, without quotes",
    ),
    "Python's condition": (lambda t: t.to_arrow(where=lambda rows: rows), InvalidInputError, "give Spark SQL text"),
    "no rows": (lambda t: t.upsert([]), InvalidInputError, "an empty list names no columns"),
    "a file's name for rows": (lambda t: t.upsert("a.parquet"), InvalidInputError, "read the file first"),
    "a row without its key": (
        lambda t: t.insert([{**ROWS[0], "id": None}]),
        InvalidInputError,
        "'id' is null at row 0",
    ),
    "rows without the key": (
        lambda t: t.upsert([{"part": "a", "ts": 1, "x": 1.0}]),
        SchemaMismatchError,
        "no column 'id'",
    ),
    "ordering of another type": (
        lambda t: t.upsert([{**ROWS[0], "ts": "new"}]),
        SchemaMismatchError,
        "'ts' cannot be read",
    ),
    "another table's rows": (lambda t: t.overwrite([{"a": 1}]), SchemaMismatchError, "no record key column 'id'"),
    "a source of two rows a key": (
        lambda t: t.merge([ROWS[0], ROWS[0]]).when_matched_update().execute(),
        InvalidInputError,
        "keep one row per key",
    ),
    "log files of a table without": (
        lambda t: t.compact(),
        InvalidInputError,
        "is copy-on-write: it has no log files",
    ),
    "a version to come": (lambda t: t.to_arrow(as_of=30), InstantNotAvailableError, "no version 30; it has versions 0"),
    "a path for a storage": (lambda t: lakeformat.Table("/data/t"), InvalidInputError, "lakeformat.open('/data/t')"),
    "Delta's name": (lambda t: lakeformat.DeltaTable("/data/t"), AttributeError, "lakeformat.open(path)"),
    "a name misspelt": (lambda t: lakeformat.opn("/data/t"), AttributeError, "did you mean 'open'?"),
}  # fmt: skip


def reopen(table: lakeformat.Table, **options: Any) -> None:
    lakeformat.open(table.context.storage.location, **options)


@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_raises_one_line_and_changes_nothing(case: str, table: lakeformat.Table) -> None:
    act, error, said = MISTAKES[case]
    with pytest.raises(error) as caught:
        act(table)
    assert type(caught.value) is error
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(table.history()) == 1
    assert len(table) == 6


def _parquet(folder: Path, name: str = "rows.parquet") -> Path:
    (folder / name).parent.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), folder / name)
    return folder


def _touched(folder: Path, name: str) -> Path:
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("{}")
    return folder


#: Case -> how to make the folder, and a part of the error. A write must not make tables of any except the last two.
FOREIGN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "delta": (lambda f: _touched(f, "_delta_log/00000000000000000000.json"), "a Delta table; read it with its own"),
    "iceberg": (lambda f: _touched(f, "metadata/v1.metadata.json"), "an Iceberg table; read it with its own"),
    "parquet": (_parquet, r"plain Parquet; lakeformat\.adopt\(path"),
    "parquet in folders": (lambda f: _parquet(f, "day=1/rows.parquet"), r"plain Parquet; lakeformat\.adopt\(path"),
    "a file": (lambda f: _parquet(f) / "rows.parquet", "a file of Parquet; give the folder"),
    "a partition": (lambda f: _touched(f, ".hoodie_partition_metadata"), "give the folder above it"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_open_of_a_foreign_folder_says_what_the_folder_is(case: str, tmp_path: Path) -> None:
    make, said = FOREIGN[case]
    path = make(tmp_path / "f")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TableNotFoundError, match=rf"no table at {re.escape(str(path))} \(.*; this is .*{said}"):
        lakeformat.open(path)
    if case not in {"a file", "a partition"}:
        with pytest.raises(InvalidOptionError, match=f"cannot make a table at .*{said}.* choose another path"):
            lakeformat.create(path, ROWS, record_key="id")
    assert sorted(tmp_path.rglob("*")) == before


def test_open_inside_a_table_names_the_table_folder(table: lakeformat.Table) -> None:
    location = table.context.storage.location
    with pytest.raises(TableNotFoundError, match=rf"; open {re.escape(location)}$"):
        lakeformat.open(f"{location}/.hoodie")


@pytest.mark.parametrize(("is_old", "said"), [(True, "this one is older"), (False, "there is none")])
def test_import_with_an_old_or_missing_pyspark_is_refused(is_old: bool, said: str, tmp_path: Path) -> None:
    """A package without Python data sources plays PySpark 3. ``-S`` plays an environment without PySpark."""
    if is_old:
        _touched(tmp_path, "pyspark/sql/__init__.py").joinpath("pyspark/__init__.py").touch()
        (tmp_path / "pyspark/sql/__init__.py").write_text("")
    program = f"import sys; sys.path[:0] = {[str(tmp_path), str(ROOT)]}; from lakeformat.spark import LakehouseTable"
    run = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    message = run.stderr.splitlines()[-1]
    assert message.startswith(f"ImportError: lakeformat.spark needs PySpark 4.0 or later, and {said}; run pip install")
