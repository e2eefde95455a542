"""The small commits of ``benchmarks.years``: the table ends with the rows of a dictionary, and keeps its size."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from benchmarks.years.engines import Lakeformat
from benchmarks.years.workload import ROWS, commits, first_rows


@pytest.mark.parametrize("kind", ["6", "9-mor"])
def test_round_of_commits_keeps_the_table_size(kind: str, tmp_path: Path) -> None:
    life = Lakeformat(tmp_path / "table", kind)
    held = {row["id"]: row for row in first_rows().to_pylist()}
    for commit in commits(10):
        life.commit(commit)
        brought = {row["id"]: row for row in commit.rows.to_pylist()}
        kept = {key: row for key, row in held.items() if key not in brought}
        held = kept if commit.verb == "delete" else kept | brought
    assert len(held) == ROWS
    found = lakeformat.open(tmp_path / "table").to_arrow(meta_columns=False).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [held[key] for key in sorted(held)]
    assert life.instants() >= 11
