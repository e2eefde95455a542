"""The metadata table is kept in other circumstances: writers at once, other time zones, nested columns with nulls."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.metadata_table.compaction import last_compaction
from tests.helpers.fixture_tables import unpack
from tests.helpers.hudi_view import find_disagreements, open_hudi_view
from tests.helpers.new_metadata_table import make_metadata_table
from tests.metadata_table.test_fixtures import open_table
from tests.metadata_table.test_kept import LAYOUTS, assert_kept, rows_of
from tests.metadata_table.test_undone import new_rows


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_writers_at_once(name: str, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    rows = lakeformat.open(path).to_arrow().slice(0, 3)
    before = rows_of(lakeformat.open(path))

    def write(writer: str) -> None:
        table = lakeformat.open(path)
        for number in range(4):
            table.insert(new_rows(rows, f"{writer}{number}-"))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, ("a", "b"))) == [None, None]
    assert len(rows_of(lakeformat.open(path))) == len(before) + 24
    assert_kept(path)


@pytest.mark.parametrize("name", LAYOUTS)
def test_compaction_leaves_out_what_was_completed_after_the_write_began(name: str, tmp_path: Path) -> None:
    """A compaction has a time before the write that carries it out. A later log block is read after its base file."""
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = lakeformat.open(path, **{"hoodie.metadata.compact.max.delta.commits": 1})
    rows = table.to_arrow(where="region = 'eu'").slice(0, 3)

    def add_rows_first(batch: pa.RecordBatch) -> pa.Array:
        if not lakeformat.open(path).count(where="id = 'other0'"):
            lakeformat.open(path).insert(new_rows(rows, "other"))
        return batch["qty"]

    before = last_compaction(open_table(path))  # type: ignore[arg-type]
    table.update({"qty": add_rows_first}, where="region = 'us'")
    assert lakeformat.open(path).count(where="id = 'other0'") == 1
    assert_kept(path)
    is_late = open_table(path).instants.has_completion_times  # type: ignore[union-attr]
    assert last_compaction(open_table(path)) > before or not is_late  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("kind", ["LOCAL", "UTC"])
def test_record_index_has_true_times_in_other_time_zones(
    zone: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    properties = path / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text().replace("timezone=LOCAL", f"timezone={kind}"))
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            began = time.time() * 1000
            table = lakeformat.open(path)
            rows = new_rows(table.to_arrow().slice(0, 3), "new")
            table.insert(rows)
            metadata = open_table(path)
            assert metadata is not None
            found = metadata.record_index(rows["id"].combine_chunks())["instant_ms"].to_pylist()
            assert len(found) == 3
            assert all(began - 2000 <= ms <= time.time() * 1000 + 2000 for ms in found)
            table.rollback()
            assert_kept(path)
    finally:
        time.tzset()


@pytest.mark.parametrize("version", [6, 9])
def test_nested_columns_with_nulls_inside(version: int, tmp_path: Path) -> None:
    spot = pa.struct([("name", pa.string()), ("at", pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))]))])
    schema = pa.schema([("id", pa.string()), ("spot", spot), ("tags", pa.list_(pa.string()))])
    values = [
        {"id": "a", "spot": {"name": None, "at": {"x": 1.0, "tags": [None, "t"]}}, "tags": [None]},
        {"id": "b", "spot": {"name": "n", "at": None}, "tags": []},
        {"id": "c", "spot": None, "tags": None},
    ]
    options = {"hoodie.write.table.version": version}
    table = lakeformat.create(str(tmp_path / "t"), schema, record_key="id", **options)
    make_metadata_table(table)
    table.insert(pa.Table.from_pylist(values, schema))
    table.upsert(pa.Table.from_pylist([{**values[2], "spot": values[1]["spot"]}], schema))
    assert find_disagreements(table) == []
    table.rollback()
    view = open_hudi_view(table)
    assert view is not None
    assert find_disagreements(table) == []
    assert sorted(view.rows(schema.names).to_pylist(), key=lambda row: str(row["id"])) == values
