"""A range that begins at an undone commit is refused, because no change says what the rollback restored."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.tables import a_batch, a_schema

SCHEMA = a_schema(id="string", v="int64")


def rows(v: int) -> pa.Table:
    return a_batch(SCHEMA, id="a", v=v)


@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("way", ["rollback", "restore"])
def test_range_from_a_rolled_back_instant_is_refused(
    way: str, version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **{"hoodie.write.table.version": version})
    table.upsert(rows(1))
    first = table.changes("000").until
    saved = table.savepoint().instant_time
    table.upsert(rows(2))
    second = table.changes("000").until
    if way == "rollback":
        table.rollback()
    else:
        table.restore(saved)
        table.upsert(rows(3))
        assert table.changes(first, images=True).to_arrow().num_rows == 1
    for images in (False, True):
        caplog.clear()
        table.changes(first, images=images)
        assert caplog.messages == []
        table.changes(second, images=images)
        (message,) = caplog.messages
        assert f"begin at {second}" in message
        assert "read the table again" in message
        assert "\n" not in message
