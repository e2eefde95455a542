"""The table that every engine reads and writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeformat import Table
from tests.helpers.engine_tables import new_engine_table


@pytest.fixture(params=[False, True], ids=["copy-on-write", "merge-on-read"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return new_engine_table(tmp_path, merge_on_read=request.param)
