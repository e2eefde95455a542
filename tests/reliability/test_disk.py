"""A disk without permission or without space: the error is clear, and the table reads as before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakeformat
from lakeformat.storage import LocalStorage
from tests.helpers.flights import NEXT, Model, copy_of, leftovers, rows_of

#: A program that does one upsert under a limit. It prints the error and the number of rows that are readable then.
SCRIPT = """
import json, os, resource, sys
import numpy, pyarrow as pa
import lakeformat

path, limit = sys.argv[1], sys.argv[2]
table = lakeformat.open(path)
table.to_arrow()
noise = numpy.random.default_rng(1).bytes(600_000).hex()
texts = [noise[i * 10_000:(i + 1) * 10_000] for i in range(100)]
rows = pa.table({"id": range(100, 200), "region": ["r1"] * 100, "v": texts})
if limit == "nobody":
    if os.geteuid() == 0:
        os.seteuid(65534)
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    table.upsert(rows)
except lakeformat.LakeformatError as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error), "rows": table.to_arrow().num_rows}))
else:
    print(json.dumps({"error": None}))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def upsert_under(storage: LocalStorage, limit: str) -> dict[str, object]:
    """Run the script on the table. Return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, storage.root, limit], check=True, capture_output=True, text=True
    )
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_write_to_a_read_only_folder_fails_cleanly(template: tuple[Path, Model], open_folder: Path) -> None:
    path, before = template
    storage = copy_of(path, open_folder)
    for folder, _, files in os.walk(storage.root):
        Path(folder).chmod(0o555)
        for file in files:
            Path(folder, file).chmod(0o444)
    result = upsert_under(storage, "nobody")
    for folder, _, _ in os.walk(storage.root):
        Path(folder).chmod(0o755)
    assert result["error"] == "StorageError"
    assert "permission denied; give this user the right to it" in str(result["text"])
    assert "\n" not in str(result["text"])
    assert result["rows"] == len(before)
    assert rows_of(storage) == before
    assert leftovers(storage) == []


@pytest.mark.parametrize(
    "limit_bytes", [900, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 40, 300, 2_000, 20_000, 100_000))]
)
def test_write_to_a_full_disk_fails_cleanly(limit_bytes: int, template: tuple[Path, Model], tmp_path: Path) -> None:
    """The limit hits another file each time: a claim, the timeline, a footer, the middle of a data file."""
    path, before = template
    storage = copy_of(path, tmp_path)
    result = upsert_under(storage, str(limit_bytes))
    assert result["error"] == "StorageError"
    assert "larger than this process may write; raise the limit" in str(result["text"])
    assert "\n" not in str(result["text"])
    assert result["rows"] == len(before)
    assert rows_of(storage) == before
    NEXT.run(lakeformat.Table(storage))
    assert rows_of(storage) == NEXT.applied(before)
    assert leftovers(storage) == []
