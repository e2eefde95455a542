"""An archive with one damaged file is read whole, or the damage is named: no instant is lost silently."""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat import CorruptTableError, UnsupportedTableError
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.store import TimelineStore
from tests.helpers.damage import flips
from tests.helpers.fixture_tables import FIXTURES, unpack

LEVELS = "hudi_life/v9_cow_lsm_levels"
LOGS = "hudi_life/v6_cow_cleaned_archived"


def instants(store: TimelineStore) -> list[dict[str, Any]]:
    """Return every archived instant, with the data of each commit."""
    archive = store.read_archived()
    commits = archive.completed_in("")
    assert len(list(archive.commits(commits))) == len(commits)
    return archive.columns.drop_columns(["file"]).to_pylist()


def archive_of(name: str) -> tuple[TimelineStore, str]:
    """Return the table's ``.hoodie`` in memory, and the folder of its archive."""
    storage = MemoryStorage()
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        for path in archive.namelist():
            inside = path.partition("/")[2]
            if inside.startswith(".hoodie/") and "/metadata/" not in inside and not path.endswith("/"):
                storage.create(inside, archive.read(path))
    store = TimelineStore(storage)
    return store, store.config().archive_folder


def put(storage: MemoryStorage, path: str, data: bytes) -> None:
    storage.delete(path)
    storage.create(path, data)


def assert_whole_or_named(store: TimelineStore, path: str, whole: list[dict[str, Any]], caplog: Any) -> None:
    caplog.clear()
    try:
        found = instants(store)
    except (CorruptTableError, UnsupportedTableError):
        return
    if found != whole:
        assert [record.levelno for record in caplog.records][:1] == [logging.WARNING]
        assert path.rpartition("/")[2] in caplog.text


@pytest.mark.parametrize("part", ["_version_", "manifest_14"])
def test_flipped_bit_in_a_manifest_is_survived_or_named(part: str, caplog: pytest.LogCaptureFixture) -> None:
    store, folder = archive_of(LEVELS)
    whole, data = instants(store), store.storage.read(f"{folder}/{part}")
    for damaged in flips(data, most=400):
        put(store.storage, f"{folder}/{part}", damaged)
        assert_whole_or_named(store, part, whole, caplog)


@pytest.mark.parametrize("name", [LEVELS, LOGS])
def test_damaged_archive_files_are_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    store, folder = archive_of(name)
    whole = instants(store)
    files = [entry.path for entry in store.storage.list(folder) if entry.name.startswith((".commits", "2"))]
    assert files
    for path in files:
        data = store.storage.read(path)
        for damaged in [b"", data[: len(data) // 2], data[:-1], *flips(data, most=20)]:
            put(store.storage, path, damaged)
            assert_whole_or_named(store, path, whole, caplog)
        put(store.storage, path, data)
    assert instants(store) == whole


@pytest.mark.parametrize(("said", "warns"), [(b"13", False), (b"12", True), (b"1", True), (b"", False), (b"x", True)])
def test_an_older_version_does_not_hide_the_newest_manifest(
    said: bytes, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer that dies between manifest and version leaves the previous number."""
    store, folder = archive_of(LEVELS)
    whole = instants(store)
    caplog.clear()
    put(store.storage, f"{folder}/_version_", said)
    assert instants(store) == whole
    assert bool(caplog.records) == warns
    assert ("_version_" in caplog.text and "damaged" in caplog.text) == warns


def test_check_names_a_version_that_is_damaged(tmp_path: Path) -> None:
    path = unpack(LEVELS, tmp_path)
    version = next(path.rglob("_version_"))
    version.write_bytes(b"12")
    named = [found for found in lakeformat.open(path).check() if found.path.endswith("_version_")]
    assert [found.kind.name for found in named] == ["TORN_ARCHIVE"]
    assert "says 12" in named[0].cure


def test_half_written_manifest_is_ignored() -> None:
    store, folder = archive_of(LEVELS)
    whole, newest = instants(store), store.storage.read(f"{folder}/manifest_14")
    store.storage.create(f"{folder}/manifest_15", newest[:30])
    assert instants(store) == whole
    put(store.storage, f"{folder}/_version_", b"15")
    with pytest.raises(CorruptTableError, match="manifest_15"):
        instants(store)


@pytest.mark.parametrize(
    ("gone", "said"),
    [("manifest_14", r"_version_ names manifest_14, which is missing; .* restore"), ("2", r"is missing: .*\.parquet")],
)
def test_missing_archive_file_is_named(gone: str, said: str) -> None:
    store, folder = archive_of(LEVELS)
    path = next(entry.path for entry in store.storage.list(folder) if entry.name.startswith(gone))
    store.storage.delete(path)
    with pytest.raises(CorruptTableError, match=said):
        instants(store)


def test_incremental_read_is_complete_with_a_damaged_version_file(tmp_path: Path) -> None:
    table = unpack(LEVELS, tmp_path)
    version = next(table.rglob("_version_"))
    whole = sorted(map(str, lakeformat.open(table).changes(since="000").to_arrow().to_pylist()))
    data = version.read_bytes()
    for damaged in flips(data, most=16):
        version.write_bytes(damaged)
        try:
            found = lakeformat.open(table).changes(since="000").to_arrow().to_pylist()
        except CorruptTableError:
            continue
        assert sorted(map(str, found)) == whole
