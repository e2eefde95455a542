"""The index may fail at any call to storage: no write fails because of it, and readers list the files instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat.errors import LakeformatError, StorageError
from lakeformat.file_system_view.file_index.stored import FOLDER
from lakeformat.storage import LocalStorage, MemoryStorage
from tests.helpers.index_tables import compare_with_listing, copy_table, index_files, new_table, open_as_foreign, rows


class FailingStorage(MemoryStorage):
    """A storage in which some calls about the index fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: frozenset[str] = frozenset()
        self.error: type[Exception] = StorageError
        self.about = FOLDER

    def _enter(self, name: str, path: str) -> None:
        if name in self.failing and path.startswith(self.about):
            raise self.error(f"cannot {name} {path}: injected; try again")

    def list(self, path: str) -> Any:
        self._enter("list", path)
        return super().list(path)

    def read(self, path: str) -> bytes:
        self._enter("read", path)
        return super().read(path)

    def open_output(self, path: str) -> Any:
        self._enter("open_output", path)
        return super().open_output(path)

    def delete(self, path: str) -> None:
        self._enter("delete", path)
        super().delete(path)


@pytest.mark.parametrize("call", ["list", "read", "open_output", "delete"])
@pytest.mark.parametrize("before", [0, 1, 2, 4])
def test_failing_index_call_costs_only_the_index(call: str, before: int) -> None:
    storage = FailingStorage()
    table = new_table(storage)
    for number in range(before):
        table.upsert(rows(number, number + 1, bump=number))
    storage.failing = frozenset({call})
    for number in range(3):
        table.upsert(rows(number, number + 2, bump=10 + number))
    kept = {row["id"]: row["v"] for row in table.to_arrow(["id", "v"]).to_pylist()}
    storage.failing = frozenset()
    compare_with_listing(table)
    assert {row["id"]: row["v"] for row in copy_table(table).to_arrow(["id", "v"]).to_pylist()}.keys() == kept.keys()
    table.upsert(rows(1, 2, 3, bump=20))
    assert compare_with_listing(copy_table(table))


@pytest.mark.parametrize("error", [RuntimeError, AttributeError, OverflowError])
def test_index_error_never_fails_the_write(error: type[Exception]) -> None:
    storage = FailingStorage()
    table = new_table(storage)
    storage.failing, storage.error = frozenset({"open_output"}), error
    for number in range(4):
        table.insert(rows(number))
    assert sorted(table.to_arrow(["id"]).column("id").to_pylist()) == [0, 1, 2, 3]
    assert index_files(table) == []
    storage.failing = frozenset()
    table.insert(rows(4))
    assert compare_with_listing(copy_table(table))


def test_commit_is_indexed_even_if_no_snapshot_can_be_written() -> None:
    storage = FailingStorage()
    table = new_table(storage)
    for number in range(4):
        table.upsert(rows(number, number + 1, bump=number))
    storage.failing, storage.about = frozenset({"open_output"}), f"{FOLDER}/shard"
    for number in range(4):
        table.insert(rows(10 + number))
        assert compare_with_listing(copy_table(table))
        assert all(not part.files.column("rows").null_count for part in copy_table(table).snapshot().live.portions())
    storage.failing = frozenset()
    table.insert(rows(20))
    assert compare_with_listing(copy_table(table))


def test_disabled_index_is_not_touched_by_writers() -> None:
    storage = FailingStorage()
    ours = new_table(storage)
    for number in range(4):
        ours.upsert(rows(number, number + 1, bump=number))
    storage.failing, storage.error = frozenset({"list", "read", "open_output", "delete"}), AssertionError
    table = open_as_foreign(ours)
    table.insert(rows(20, 21))
    table.upsert(rows(20, 30, bump=1))
    table.bulk_insert(rows(40))
    table.delete(rows(40))
    table.delete(where="id = 21")
    table.update({"v": 0.5}, where="id = 20")
    table.merge(rows(20, 50)).when_matched_update().when_not_matched_insert().execute()
    table.plan_upsert(rows(20, 60))
    table.cluster(by=["id"])
    table.insert_overwrite(rows(51, 52))
    table.delete_partitions(["p1"])
    assert {row["id"] for row in table.to_arrow(["id"]).to_pylist()} == {2, 20, 50, 51}
    storage.failing = frozenset()
    assert compare_with_listing(copy_table(table))


def test_truncated_index_file_is_ignored() -> None:
    table = new_table()
    for number in range(5):
        table.upsert(rows(number, number + 1, bump=number))
    storage = table.context.storage
    for path in index_files(table):
        data = storage.read(path)
        other = copy_table(table)
        other.context.storage.replace(path, data[: len(data) // 2])
        compare_with_listing(other)
        other.upsert(rows(9))
        assert compare_with_listing(copy_table(other)), path


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 9])
def test_scan_is_readable_after_index_update_and_archiving(tmp_path: Path, version: int) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")  # The other path shares no cached state.
    options = {"hoodie.write.table.version": version, "hoodie.clean.automatic": False}
    table, reader = new_table(LocalStorage(str(tmp_path / "table")), **options), tmp_path / "link"
    for number in range(12):
        table.upsert(rows(number, number + 3, number + 4, bump=number))
    held, before = lakeformat.open(reader).read(), repr(table.to_arrow().sort_by("id").to_pylist())
    table.upsert(rows(90))
    undone = lakeformat.open(reader).read()
    table.rollback()
    for number in range(3):
        table.upsert(rows(number, bump=20))
    table.archive(min_commits=1)
    table.context.storage.delete_folder(FOLDER)
    assert repr(held.to_arrow().sort_by("id").to_pylist()) == before
    with pytest.raises(LakeformatError, match="taken back since it was read"):
        undone.to_arrow()
