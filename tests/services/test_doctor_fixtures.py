"""The doctor finds nothing wrong in the fixtures: tables by Hudi of every version and kind, and tables by us."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import UnsupportedTableError
from tests.helpers import fixture_tables

COLLECTIONS = sorted(path.name for path in fixture_tables.FIXTURES.iterdir() if path.is_dir())
NAMES = [name for collection in COLLECTIONS for name in fixture_tables.names(collection)]


@pytest.mark.parametrize("name", NAMES)
def test_check_of_a_healthy_table_finds_nothing(name: str, tmp_path: Path) -> None:
    path = fixture_tables.unpack(name, tmp_path)
    try:
        table = lakeformat.open(path)
    except UnsupportedTableError:
        return  # No program reads it.
    assert str(table.check()) == "nothing is wrong"
