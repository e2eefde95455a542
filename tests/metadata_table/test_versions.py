"""A table that moves to another version has its metadata table afterwards: kept, or made again where forms differ."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import lakeformat
from lakeformat.metadata_table.index_definitions import read_statistics_form
from tests.helpers.fixture_tables import unpack
from tests.metadata_table.test_fixtures import open_table
from tests.metadata_table.test_kept import assert_kept, changed, rows_of
from tests.metadata_table.test_undone import new_rows


def test_upgrade_from_8_to_9_keeps_all_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = unpack("hudi_metadata/v8_cow_clustered", tmp_path)
    before = open_table(path)
    assert before is not None
    with caplog.at_level(logging.WARNING, "lakeformat"):
        lakeformat.open(path).upgrade(9)
    assert not caplog.records
    after = open_table(path)
    assert after is not None
    assert (after.config.version, after.names) == (9, before.names)
    assert after.files() == before.files()
    assert after.record_index() == before.record_index()
    table = lakeformat.open(path)
    table.upsert(changed(table.to_arrow().slice(0, 2)))
    assert_kept(path)


def test_downgrade_from_9_to_8_makes_the_statistics_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    keys = open_table(path).record_index()  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING, "lakeformat"):
        lakeformat.open(path).downgrade(8)
    assert not caplog.records
    after = open_table(path)
    assert after is not None
    assert after.config.version == 8
    assert set(after.names) >= {"bloom_filters", "column_stats", "files", "record_index"}
    assert not read_statistics_form(after).stores_types
    assert after.record_index() == keys
    table = lakeformat.open(path)
    table.upsert(changed(table.to_arrow().slice(0, 2)))
    assert_kept(path)


@pytest.mark.parametrize(("name", "to"), [("v6_cow_overwrite_clean", 9), ("v9_cow_delete_partition", 6)])
def test_moving_to_the_other_layout_makes_it_again(name: str, to: int, tmp_path: Path) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    table = lakeformat.open(path)
    before = rows_of(table)
    _ = table.upgrade(to) if to == 9 else table.downgrade(to)
    after = open_table(path)
    assert after is not None
    assert after.config.version == to
    assert set(after.names) >= {"bloom_filters", "column_stats", "files", "record_index"}
    assert rows_of(lakeformat.open(path)) == before
    table = lakeformat.open(path)
    table.upsert(changed(table.to_arrow().slice(0, 2)))
    table.insert(new_rows(table.to_arrow().slice(0, 2), "new"))
    assert_kept(path)
