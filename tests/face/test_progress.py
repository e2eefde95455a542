"""Long work shows its progress on a terminal, and nowhere else."""

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
from typing import Final

import pytest

from lakeformat.display import is_visible

WORK: Final = """
import sys
import numpy as np, pyarrow as pa
import lakeformat

rows = pa.table({"id": np.arange(3000), "part": np.arange(3000) % 3, "x": np.arange(3000) % 101})
table = lakeformat.create(sys.argv[1], rows.schema, record_key="id", partition_by="part", table_type="merge_on_read")
table.upsert(rows)
table.upsert(rows.slice(0, 100))
assert table.to_arrow().num_rows == 3000
table.compact()
table.cluster("x")
assert len(table.clean(versions=1).files)
"""
#: tqdm draws at once and at every step, and leaves its output.
DRAWN: Final = {"TQDM_DELAY": "0", "TQDM_MININTERVAL": "0", "TQDM_LEAVE": "1"}


#: More bytes than were planned, because a total in bytes is an estimate.
BEYOND: Final = """
from lakeformat.display import BYTES, progress

with progress("read", 10, BYTES) as shown:
    shown.advance(8)
    shown.advance(8, rows=1)
    shown.advance(8, files=2)
"""


def run_on_terminal(environment: dict[str, str], program: str, *arguments: object) -> str:
    """Return all output of a program on a terminal of 200 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, **environment}) as process:
        os.close(theirs)
        shown = b""
        try:
            while some := os.read(ours, 65536):
                shown += some
        except OSError:  # Linux reports so that no process holds the other end.
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0, shown.decode()
    return shown.decode()


@pytest.mark.budget(10)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="terminals of Linux")
def test_progress_draws_each_long_task_on_a_terminal(tmp_path: Path) -> None:
    shown = run_on_terminal(DRAWN, WORK, tmp_path / "t")
    ended = {found[1]: found[2] for found in re.finditer(r"(\w+): 100%\|[^|]*\|([^\r\n]*)", shown)}
    assert set(ended) == {"upsert", "read", "compact", "cluster", "clean"}
    assert "3,000 rows, 3 files" in ended["read"]
    assert "3,000 rows" in ended["cluster"]
    assert all("<" in counts for counts in ended.values())  # The remaining time follows it.


@pytest.mark.budget(10)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="terminals of Linux")
def test_environment_variable_switches_progress_off(tmp_path: Path) -> None:
    assert run_on_terminal({**DRAWN, "TQDM_DISABLE": "1"}, WORK, tmp_path / "t") == ""


@pytest.mark.budget(10)
def test_progress_draws_nothing_into_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORK, str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **DRAWN})
    assert (done.stdout, done.stderr) == ("", "")
    assert not is_visible() or sys.stderr.isatty()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="terminals of Linux")
def test_progress_beyond_the_plan_ends_at_100_percent() -> None:
    drawn = run_on_terminal(DRAWN, BEYOND).replace("\r", "\n").split()
    assert [word for word in drawn if "%" in word][-1].startswith("100%")
    assert {word for word in drawn if "/10.0" in word} == {"0.00/10.0", "8.00/10.0", "10.0/10.0"}
    assert "rows, 2 files" in " ".join(drawn)
