"""Rows for people are printed as they come, in columns that stay where they are; a wait shows what was read."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakeformat
from lakeformat.cli.rows import show_table


def test_rows_beyond_the_first_block_stand_in_the_same_columns(capsys: pytest.CaptureFixture[str]) -> None:
    texts, halves = ["é" * (at % 7) for at in range(1200)], [at % 10 / 2 for at in range(1200)]
    show_table(pa.table({"id": range(1000, 2200), "name": texts, "x": halves}).to_reader())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:]] == [
        [str(1000 + at), *([texts[at]] if texts[at] else []), str(halves[at])] for at in range(1200)
    ]
    assert {len(line) for line in lines[2:]} == {len(lines[2])}


def test_rows_are_printed_before_the_last_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []

    def batches() -> Any:
        for at in range(3):
            seen.append(capsys.readouterr().out.count("\n"))
            yield pa.RecordBatch.from_pydict({"id": [at] * 10})

    show_table(pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), batches()))
    assert seen == [0, 12, 10]


@pytest.mark.parametrize("rows", [0, 3])
def test_few_rows_and_no_rows_have_a_head(rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    show_table(pa.table({"id": pa.array(range(rows), pa.int64())}).to_reader())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "id"
    assert [line.strip() for line in lines[2:]] == [str(at) for at in range(rows)]


def test_slow_read_shows_its_rows_on_a_terminal() -> None:
    code = (
        "import sys, time, pyarrow as pa\n"
        "import lakeformat.cli.waiting as waiting\n"
        "def batches():\n"
        "    yield pa.RecordBatch.from_pydict({'id': [1, 2, 3]})\n"
        "    time.sleep(1.6)\n"
        "    yield pa.RecordBatch.from_pydict({'id': [4]})\n"
        "rows = pa.RecordBatchReader.from_batches(pa.schema({'id': pa.int64()}), batches())\n"
        "print(waiting.show_reading(rows, hides=False).read_all().num_rows)\n"
    )
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=terminal, check=True, env=environment, text=True
    )
    os.close(terminal)
    shown = os.read(controller, 1 << 16).decode()
    os.close(controller)
    assert done.stdout == "4\n"
    assert "reading, 3 rows" in shown


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.jsonl"])
def test_the_name_of_the_output_tells_its_format(name: str, run: Any, tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", {"id": "int64"}, record_key="id").insert([{"id": at} for at in range(50)])
    read = {"o.parquet": duckdb.read_parquet, "o.csv": duckdb.read_csv, "o.jsonl": duckdb.read_json}[name]
    assert run("read", tmp_path / "t", "--output", tmp_path / name).code == 0
    assert read(str(tmp_path / name)).aggregate("count(*), max(id)").fetchall() == [(50, 49)]
    assert run("files", tmp_path / "t", "--output", tmp_path / name).code == 0
    assert read(str(tmp_path / name)).aggregate("sum(rows)").fetchall() == [(50,)]


def test_an_output_without_a_known_ending_needs_a_format(run: Any, tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", {"id": "int64"}, record_key="id")
    found = run("read", tmp_path / "t", "--output", tmp_path / "o.xlsx")
    assert (found.code, "give --format csv, json, arrow or parquet" in found.err) == (2, True)
