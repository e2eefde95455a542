"""Sail, a Spark without Java, reads and writes tables through the data source (``pip install 'lakeformat[sail]'``)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
#: Sail knows older releases of PySpark only. `make test-slow` makes this environment.
PYTHON = ROOT / ".venv-sail/bin/python"
PLAIN = [[n, f"n{n % 3}"] for n in range(20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sail")


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, Any]:
    """Run the session in the environment that has Sail."""
    if not PYTHON.exists() and not os.environ.get("CI"):
        pytest.skip("run make .venv-sail/.stamp")
    command = [str(PYTHON), "-m", "tests.helpers.sail_session", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_save_upsert_and_delete_are_those_of_spark(answers: dict[str, Any]) -> None:
    merged = [[n, "changed" if n in {3, 4} else name] for n, name in PLAIN]
    assert (answers["save"], answers["upsert"], answers["delete"]) == (None, None, None)
    assert answers["count"] == 20
    assert answers["rows"] == [*merged, [25, "changed"]]
    assert answers["filter"] == [row for row in merged if row[0] > 15 and row[1] == "n1"]
    assert answers["as of"] == answers["after delete"] == 20


def test_sql_makes_tables_inserts_and_selects(answers: dict[str, Any]) -> None:
    assert answers["view"] == [["changed", 2], ["n0", 6], ["n1", 6], ["n2", 6]]
    assert answers["insert by sql"] == [[100, "sql"]]
    assert answers["make by sql"] == [[1, "x"], [2, "y"]]


def test_log_files_are_merged_and_all_types_come_back(answers: dict[str, Any], folder: Path) -> None:
    assert answers["merge-on-read"] == [[3, "changed"], [4, "changed"], [25, "changed"]]
    assert any((folder / "logged").rglob(".*.log.*"))
    assert answers["types"] == answers["expected types"]
    stored = lakeformat.open(folder / "types").schema
    assert [stored.field(name).type for name in ("at", "local")] == [pa.timestamp("us", "UTC"), pa.timestamp("us")]


def test_errors_name_the_cause(answers: dict[str, Any]) -> None:
    assert "no table at" in answers["no table"]
    assert "hoodie.datasource.write.operation='upsrt'" in answers["bad option"]


def test_registered_load_and_table_methods_give_all_rows(answers: dict[str, Any], folder: Path) -> None:
    assert answers["registered"] == [21, 21]
    assert answers["table methods"] == [1, 3, [[18, "updated"]]]
    rows = lakeformat.open(folder / "t").to_arrow(["id"])["id"].to_pylist()
    assert sorted(rows) == [*range(19), 100]
