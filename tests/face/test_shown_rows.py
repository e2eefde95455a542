"""What a Python shell and a notebook show: rows as tables, errors as one line. Frames whose values can be changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import polars
import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell

import lakeformat
from lakeformat import Table
from tests.face.test_notebook_views import EVIL, OURS, Seen
from tests.helpers.tables import a_batch, a_table

LINES: Final[dict[str, Callable[[Table], Any]]] = {
    "read": lambda table: table.read(),
    "changes": lambda table: table.changes("000"),
    "images": lambda table: table.changes("000", images=True),
    "files": lambda table: table.files(),
    "sql": lambda table: lakeformat.sql("select * from t order by id", t=table),
    "history": lambda table: table.history(),
}
NAMES: Final = {"images": ["op", "ts_ms", "before", "after"], "files": ["path", "partition_path"]}


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(tmp_path / "t", rows=a_batch(id=range(25), p=EVIL.replace("/", "-"), v="<b>"), partition_by="p")


@pytest.mark.parametrize("name", LINES)
def test_rows_print_as_a_table_in_a_shell(name: str, table: Table) -> None:
    lines = repr(LINES[name](table)).splitlines()
    head = next(line for line in lines if line.split()[0] in {"id", "op", "path", "version"})
    assert head.split()[: len(NAMES.get(name, []))] == NAMES.get(name, [])
    shown = lines[lines.index(head) + 1 :]
    assert len(shown) >= 1
    if name in {"read", "changes", "images"}:
        assert len(shown) == 11
        assert shown[-1] == "the first 10 rows"


@pytest.mark.parametrize("name", LINES)
def test_rows_are_an_html_table_in_a_notebook(name: str, table: Table) -> None:
    seen = Seen(LINES[name](table)._repr_html_())
    assert seen.open == []
    assert seen.tags <= OURS
    assert "td" in seen.tags


@pytest.mark.parametrize("name", LINES)
def test_rows_become_frames_and_arrow_tables(name: str, table: Table) -> None:
    answer = LINES[name](table)
    rows = answer.to_arrow()
    assert isinstance(rows, pa.Table)
    frame = answer.to_pandas()
    assert list(frame.columns) == rows.column_names
    assert frame.shape == rows.shape


def test_a_value_shown_is_that_of_the_row(table: Table) -> None:
    shown = [
        line.split() for line in repr(lakeformat.sql("select id, v from t order by id desc", t=table)).splitlines()
    ]
    assert shown == [
        ["id", "v"],
        *([str(at), "<b>"] for at in range(24, 14, -1)),
        ["25", "rows,", "the", "first", "10", "are", "shown"],
    ]


def test_a_wide_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    wide = lakeformat.sql("select * from t", t=pa.table({f"column_{at}": [at] * 10 for at in range(30)}))
    lines = repr(wide).splitlines()
    assert all(len(line) <= 60 for line in lines[:11])
    shown = lines[0].split()
    assert lines[11].startswith(f"… {30 - len(shown)} more columns: column_{len(shown)}, ")


def test_a_read_that_fails_prints_its_error(table: Table, tmp_path: Path) -> None:
    read = table.read()
    for path in (tmp_path / "t").rglob("*.parquet"):
        if ".hoodie" not in path.parts:
            path.write_bytes(b"PAR1")
    head, line = repr(read).splitlines()
    assert head.startswith("Scan(")
    assert line.startswith("CorruptTableError: ")
    assert "CorruptTableError" in read._repr_html_()


def test_a_plan_prints_its_lines_and_is_a_text(table: Table) -> None:
    said = table.explain(where="id = 3")
    assert repr(said) == str(said) == table.read(where="id = 3").plan(count_row_groups=True).describe()
    assert "<table" in said._repr_html_()
    assert copy.copy(said) == said
    assert copy.copy(said).plan == said.plan


def test_a_result_table_works_where_an_arrow_table_does(table: Table) -> None:
    files = table.files()
    rows = files.to_arrow()
    assert files == rows
    assert rows == files
    assert files.equals(table.files())
    assert files != rows.slice(1)
    assert (files.num_rows, len(files), files.column_names) == (rows.num_rows, len(rows), rows.column_names)
    assert files["path"] == rows["path"]
    assert files.filter(pa.compute.field("rows") > 0).num_rows == 1
    assert pa.table(files) == rows
    assert polars.DataFrame(files).shape == files.to_polars().shape == rows.shape
    assert duckdb.sql("select sum(rows) from files").fetchall() == [(25,)]
    assert copy.copy(files) == files
    assert "num_rows" in dir(files)
    assert a_table(rows=a_batch(id=[1], v=1)).insert(lakeformat.sql("select 2 id, 3 v")).rows.inserted == 1
    with pytest.raises(AttributeError):
        _ = files.nothing


def test_history_as_a_frame_has_a_row_for_each_entry(table: Table) -> None:
    table.upsert(a_batch(id=[1, 100], p="q", v="x"))
    table.savepoint(comment="before")
    frame = table.history(actions=True).to_pandas()
    assert list(frame["operation"]) == ["savepoint", "upsert", "insert"]
    assert list(frame["inserted"].dropna()) == [2, 25]
    assert list(frame["instant_time"]) == [each.instant_time for each in table.history(actions=True)]
    assert frame["detail"][0] == "keeps this commit: before"
    assert lakeformat.History().to_arrow().schema == table.history().to_arrow().schema


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("columns", [4, 120])
def test_values_of_a_frame_can_be_changed(tmp_path: Path, files: int, columns: int, recwarn: Any) -> None:
    """Columns of one chunk would share Arrow's memory, which pandas cannot change."""
    values = {f"c{at}": [float(at)] * 5 for at in range(columns)}
    rows = [a_batch(id=range(5 * at, 5 * at + 5), p=str(at), **values) for at in range(files)]
    frame = a_table(tmp_path / "t", rows=rows, partition_by="p").to_pandas()
    frame.loc[frame["id"] == 3, "c1"] = 77.0
    frame["c2"] += 1
    frame["new"] = 1
    assert frame.loc[frame["id"] == 3, "c1"].tolist() == [77.0]
    assert set(frame["c2"]) == {3.0}
    assert not [each for each in recwarn if issubclass(each.category, pd.errors.PerformanceWarning)]


def test_a_table_says_how_its_rows_are_read(table: Table) -> None:
    for misused in (
        lambda: list(table),
        lambda: table["id"],
        lambda: pd.DataFrame(table),
    ):
        with pytest.raises(TypeError, match="write read"):
            misused()


def _cell(text: str, **names: Any) -> str:
    """Run a cell of a notebook. Return what IPython prints for its error."""
    shell = InteractiveShell()
    shell.push(names)
    printed: list[str] = []
    shell._showtraceback = lambda kind, value, lines: printed.extend(lines)
    assert not shell.run_cell(text).success
    return "\n".join(printed)


def test_an_error_in_a_notebook_is_one_line(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = "t.read(where='nope = 2')"
    assert _cell(cell, t=table) == "InvalidInputError: column 'nope' is not in the table"
    monkeypatch.setenv("LAKEFORMAT_TRACEBACK", "1")
    whole = _cell(cell, t=table)
    assert "Traceback (most recent call last)" in whole
    assert whole.splitlines()[-1].endswith("column 'nope' is not in the table")


HINTS: Final = {
    "t.show": "print(table.read())",
    "t.blame": "changes('000', images=True).to_arrow(where=...)",
    "t.to_csv": "--format csv",
    "t.info": "describe()",
    "t.upsert([], join_cols=['id'])": "record key",
    "t.merge(source=[])": "'rows'",
    "lakeformat.upsert": "a method of a table",
    "lakeformat.from_pandas": "lakeformat.create(path",
    "lakeformat.open(t.path, as_of=0)": "read(as_of=...)",
    "t.upsert([{'id': 1, 'q': 'x', 'v': 'y'}])": "has no column 'p'; add it",
    "t.upsert([{'id': 1, 'p': 'x', 'vv': 'y'}])": "'vv' may be meant",
    """t.read(where="v ilike 'a%'")""": "lower(column) like",
}


@pytest.mark.parametrize("code", HINTS)
def test_hints_are_right(code: str, table: Table) -> None:
    with pytest.raises((AttributeError, lakeformat.LakeformatError)) as refused:
        eval(code, {"t": table, "lakeformat": lakeformat})  # noqa: S307
    assert HINTS[code] in str(refused.value)
