"""Metadata tables that lakeformat made: Apache Hudi reads by them, finds keys in them, and never builds them again."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi
from tests.interop.test_metadata_table_shared import KINDS, SCHEMA, THEIRS, assert_skipping_is_right, by_id, rows
from tests.metadata_table.test_fixtures import open_table

pytestmark = pytest.mark.interop

OPTIONS = {key: text for key, text in THEIRS.items() if key.startswith("hoodie.metadata.")}
MADE = {"files", "column_stats", "bloom_filters", "record_index"}


def filled(path: Path) -> frozenset[str]:
    """Return the instants that made partitions of the metadata table. Others would show that it was built again."""
    table = open_table(path)
    assert table is not None
    assert set(table.names) >= MADE
    return table.instants.filled


def assert_not_built_again(path: Path, born: frozenset[str]) -> None:
    """Check that Hudi has made nothing but ``partition_stats``, which no option of 1.2.0 switches off alone."""
    assert born <= filled(path)
    made = [file.read_bytes() for time in filled(path) - born for file in path.rglob(f"{time}*.deltacommit")]
    assert all(b"partition_stats" in each for each in made)
    assert not any(name.encode() + b"/" in each for each in made for name in MADE)


@pytest.mark.parametrize("is_new", [pytest.param(True, id="new"), pytest.param(False, id="existing")])
@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_hudi_goes_on_with_it(version: int, kind: str, is_new: bool, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    settings = {"hoodie.write.table.version": version, "table_type": kind, "name": "shared"}
    lakeformat.create(path, SCHEMA, record_key="id", partition_by="p", ordering="ts", **settings)
    model = {}
    for number in range(1 if is_new else 4):
        ours = lakeformat.open(path, **OPTIONS) if is_new else lakeformat.open(path)
        ours.upsert(rows(number))
        model |= by_id(rows(number))
    if not is_new:
        ours.delete(rows(2).slice(2, 1))
        del model[12]
        for name in ("column_stats", "bloom_filters", "record_index"):
            ours.create_index(name)
    born = filled(path)
    theirs = {**THEIRS, "hoodie.datasource.write.table.type": kind, "hoodie.write.table.version": str(version)}
    for number in (5, 7):
        assert by_id(hudi.read(path, options={"hoodie.metadata.enable": "true"})) == model
        assert_skipping_is_right(hudi, path, model, number - 2)
        hudi.write(path, rows(number), "upsert", **theirs)
        model |= by_id(rows(number))
        assert by_id(ours.to_arrow()) == model
        assert_not_built_again(path, born)
        assert ours.check().findings == ()
        ours.upsert(rows(number + 1))
        model |= by_id(rows(number + 1))
    assert by_id(hudi.read(path, options={"hoodie.metadata.enable": "true"})) == model
    assert_skipping_is_right(hudi, path, model, 8)
    assert_not_built_again(path, born)
    hudi_rs.assert_same_rows(ours)
