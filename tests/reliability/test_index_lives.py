"""Tables with every index follow a dictionary through random writes, statements and services."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.helpers import hudi_rs
from tests.helpers.indexed_table import INDEXES, IndexedTable

#: Number of lives of each index.
LOOK, WHOLE = 1, 40


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(
    "lives",
    [
        pytest.param(range(LOOK), id="look", marks=pytest.mark.slow),
        pytest.param(range(LOOK, WHOLE), id="whole", marks=pytest.mark.nightly),
    ],
)
def test_rows_changes_and_past_states_are_those_of_a_dictionary(index: str, lives: range, tmp_path: Path) -> None:
    copied = 0
    for seed in lives:
        life = IndexedTable(tmp_path / str(seed), random.Random(f"{index} {seed}"), index)
        for _ in range(8):
            life.take_step()
        life.check_past()
        assert not life.table.check().findings, life.log
        if all(piece.base for piece in life.table.snapshot().each_slice()):  # hudi-rs needs base files.
            hudi_rs.assert_same_rows(life.table)
        copied += life.copied
    assert copied or len(lives) == LOOK or index in {"BUCKET", "CONSISTENT_HASHING"}
