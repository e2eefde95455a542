"""Expression indexes that Hudi's SQL has made and lakeformat cannot keep: they go whole, or stay whole.

Hudi's readers go by the definition of such an index. A definition without its folder makes their queries fail, and one
with a folder that is not up to date loses rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat.metadata_table.index_definitions import INDEX_DEFINITIONS
from lakeformat.storage import LocalStorage
from tests.helpers.crashing import calls_to_fail
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, UnlockedStorage, at
from tests.helpers.fixture_tables import read_expectations, unpack
from tests.helpers.hudi_spark import table_properties

TABLES = ("hudi_rest/v9_cow_indexes", "hudi_rest/v9_mor_indexes")
BY_SQL = {"expr_index_idx_day"}
KEPT = {"files", "record_index", "secondary_index_idx_city"}
ROW = {"id": 3, "name": "Cid", "city": "oslo", "price": 3.0, "ts": 432000, "part": "b"}


def definitions(path: Path) -> set[str]:
    file = path / INDEX_DEFINITIONS
    return set(json.loads(file.read_text())["indexDefinitions"]) if file.exists() else set()


def named(path: Path) -> set[str]:
    text = table_properties(path).get("hoodie.table.metadata.partitions", "")
    return set(text.split(",")) - {""}


def folders(path: Path) -> set[str]:
    return {folder.name for folder in (path / ".hoodie/metadata").iterdir() if not folder.name.startswith(".")}


def upsert(storage: Any) -> None:
    lakeformat.Table(storage).upsert([ROW])


def rows_after(name: str) -> dict[int, dict[str, Any]]:
    rows = {row["id"]: row for row in read_expectations(name)["snapshot"]}
    return {key: {name: row[name] for name in ROW} for key, row in (rows | {3: ROW}).items()}


def stored(path: Path) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in lakeformat.open(path).to_arrow(list(ROW)).to_pylist()}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", [LocalStorage, UnlockedStorage])
def test_a_write_removes_what_it_cannot_keep_whole(kind: type[LocalStorage], name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    assert definitions(path) >= BY_SQL
    upsert(kind(str(path)))
    assert not BY_SQL & (definitions(path) | named(path) | folders(path))
    assert definitions(path) <= named(path) <= folders(path)
    assert named(path) == KEPT
    assert stored(path) == rows_after(name)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("has_folder", [True, False])
def test_the_next_write_mends_what_an_earlier_one_left(has_folder: bool, name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    text = (path / INDEX_DEFINITIONS).read_bytes()
    upsert(LocalStorage(str(path)))
    (path / INDEX_DEFINITIONS).write_bytes(text)
    if has_folder:  # An earlier write may have died before it deleted the folder.
        for index in BY_SQL:
            (path / ".hoodie/metadata" / index).mkdir()
    upsert(LocalStorage(str(path)))
    assert not BY_SQL & (definitions(path) | folders(path))
    assert "record_index" in definitions(path) & named(path)
    assert stored(path) == rows_after(name)


def test_definitions_go_with_the_whole_metadata_table_even_if_they_are_damaged(tmp_path: Path) -> None:
    path = unpack(TABLES[0], tmp_path)
    lakeformat.open(path).drop_index("files")
    assert (definitions(path), named(path)) == (set(), set())
    other = unpack(TABLES[1], tmp_path)
    (other / INDEX_DEFINITIONS).write_bytes(b"{")
    upsert(LocalStorage(str(other)))
    assert stored(other) == rows_after(TABLES[1])
    assert (definitions(other), named(other)) == (set(), set())


@pytest.mark.parametrize("mode", [Mode.AFTER, Mode.TORN])
def test_a_write_that_dies_leaves_no_definition_without_its_index(mode: Mode, tmp_path: Path) -> None:
    recording = FaultyStorage(LocalStorage(str(unpack(TABLES[0], tmp_path / "calls"))))
    upsert(recording)
    changing = calls_to_fail(recording.calls, mode)
    named_here = ("hoodie/metadata", "index.json", "hoodie.properties")
    touching = [number for number in changing if any(text in recording.calls[number].path for text in named_here)]
    assert touching
    for number in touching[:12]:
        path = unpack(TABLES[0], tmp_path / f"{number}")
        with pytest.raises(Crash):
            upsert(FaultyStorage(LocalStorage(str(path)), Fault(at(number), mode)))
        assert BY_SQL & definitions(path) <= named(path) & folders(path)
        upsert(LocalStorage(str(path)))
        assert not BY_SQL & (definitions(path) | named(path))  # No reader looks at a folder alone.
        assert stored(path) == rows_after(TABLES[0])
