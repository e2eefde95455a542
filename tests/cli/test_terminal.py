"""Rows on a terminal fit its width: columns without room are named, texts are cut, numbers are not."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import lakeformat
from lakeformat.cli.output import fit_columns

WIDE = 40


@pytest.fixture(scope="module")
def wide_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "t"
    names = [f"column_{at}" for at in range(WIDE)]
    rows = [{"id": 1_234_567 + at, "text": "long " * 30, **dict.fromkeys(names, "x")} for at in range(3)]
    lakeformat.create(
        path, {"id": "int64", "text": "string", **dict.fromkeys(names, "string")}, record_key="id"
    ).insert(rows)
    return path


def _on_a_terminal(width: int, *words: str | Path) -> tuple[list[str], str]:
    """Return the lines that a command prints on a terminal of this width, and its remarks."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    sizeless = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    command = [sys.executable, "-m", "lakeformat", *map(str, words)]
    done = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env={**sizeless, "TERM": "xterm"})
    os.close(theirs)
    out = b""
    try:
        while part := os.read(ours, 1 << 16):
            out += part
    except OSError:  # The command has ended and closed the terminal.
        pass
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.decode())
    return plain.splitlines(), done.communicate()[1].decode()


@pytest.mark.budget(10)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_wide_table_fits_the_terminal(width: int, wide_table: Path) -> None:
    lines, remarks = _on_a_terminal(width, "read", wide_table)
    assert max(map(len, lines)) <= width
    header, _, *rows = [line.rstrip() for line in lines]
    assert header.split()[:3] == ["id", "text", "column_0"]
    assert [row.split()[0] for row in rows] == ["1234567", "1234568", "1234569"]
    assert all("…" in row for row in rows)
    hidden = WIDE + 2 - len(header.split())
    assert f"{hidden} more columns: " in remarks
    assert "--columns" in remarks


@pytest.mark.budget(10)
def test_vertical_shows_every_column_on_a_line(wide_table: Path) -> None:
    lines, remarks = _on_a_terminal(60, "read", wide_table, "--vertical", "--columns", "id,column_39", "--limit", "1")
    assert [line.split() for line in lines] == [["row", "1"], ["id", "1234567"], ["column_39", "x"]]
    assert remarks == ""


@pytest.mark.parametrize(
    ("widths", "is_number", "room", "right"),
    [
        ([4, 5], [True, False], 12, [4, 5]),
        ([4, 5], [True, False], 11, [4]),
        ([4, 60], [True, False], 50, [4, 43]),
        ([8, 17, 60], [False, False, False], 45, [8, 17, 14]),
        ([8, 17, 60], [False, False, False], 42, [8, 17]),
        ([60, 4], [False, True], 20, [20]),
        ([2, 12, 40, 3], [True, True, False, True], 60, [2, 12, 32, 3]),
        ([], [], 10, []),
    ],
)
def test_columns_fit_from_the_left(widths: list[int], is_number: list[bool], room: int, right: list[int]) -> None:
    assert fit_columns(widths, is_number, room) == right


@pytest.mark.budget(10)
def test_a_history_keeps_its_numbers_whole(wide_table: Path) -> None:
    lines, _ = _on_a_terminal(60, "history", wide_table)
    assert any(lakeformat.open(wide_table).history()[0].instant_time in line for line in lines)


@pytest.mark.budget(10)
def test_what_options_lack_is_whole_on_a_narrow_terminal() -> None:
    lines, remarks = _on_a_terminal(60, "options", "check", "hoodie.clean.asyn=true", "hoodie.index.type=HBASE")
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("refused: hoodie.index.type=HBASE")
    text = " ".join(" ".join(lines).split())
    assert "did you mean hoodie.clean.async?" in text
    assert "more columns" not in remarks


@pytest.mark.budget(10)
def test_tabs_in_texts_leave_the_columns_aligned(tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", {"id": "int64", "a": "string", "b": "string"}, record_key="id").insert(
        [{"id": 1, "a": "x\ty", "b": "z"}]
    )
    lines, _ = _on_a_terminal(60, "read", tmp_path / "t")
    assert lines[-1].split() == ["1", "x", "y", "z"]
    assert not set(lines[-1]) & {"\t", "\x1b"}
