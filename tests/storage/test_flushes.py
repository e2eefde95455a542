"""What a power cut must not lose is flushed to the disk: bytes before names, and names before the call returns."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.storage import LocalStorage
from tests.helpers.storage_contract import stream

DATA = b"0123456789" * 1000


class Recorder:
    """Records the system calls that flush or name files, in order. Files are known by their inodes, folders by paths.

    Attributes:
        calls: name of each call, and the file: its size when it was flushed, or the path of a folder or of a new name.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, object]] = []
        self._root, self._fsync = root, os.fsync
        patch.setattr(os, "fsync", self._record_flush)
        for name in ("link", "replace", "rename"):
            patch.setattr(os, name, self._recorded(name, getattr(os, name)))

    def _record_flush(self, handle: int) -> None:
        self._fsync(handle)
        status = os.fstat(handle)
        folders = {each.stat().st_ino: each for each in (self._root, *self._root.rglob("*")) if each.is_dir()}
        folder = folders.get(status.st_ino)
        self.calls.append(("flush", status.st_size if folder is None else self._name(folder)))

    def _recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(source: str, target: str) -> None:
            call(source, target)
            self.calls.append((name, self._name(Path(target))))

        return recorded

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(tmp_path / "t", monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "t")


@pytest.mark.parametrize("sync", [False, True])
def test_created_file_is_flushed_before_it_has_its_name_and_the_name_before_the_call_ends(
    sync: bool, root: str, recorder: Recorder
) -> None:
    LocalStorage(root, sync=sync).create(".hoodie/x", DATA)
    assert recorder.calls == [("flush", len(DATA)), ("link", ".hoodie/x"), ("flush", ".hoodie")]


def test_created_file_is_flushed_in_the_same_order_without_hard_links(
    root: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    LocalStorage(root).create(".hoodie/x", DATA)
    assert recorder.calls == [("flush", len(DATA)), ("replace", ".hoodie/x"), ("flush", ".hoodie")]


@pytest.mark.parametrize("conditional", [False, True])
def test_replaced_file_is_flushed_before_it_has_its_name_and_the_name_before_the_call_ends(
    conditional: bool, root: str, recorder: Recorder
) -> None:
    storage = LocalStorage(root)
    if conditional:
        storage.replace_if(".hoodie/x", DATA, None)
    else:
        storage.replace(".hoodie/x", DATA)
    assert recorder.calls == [("flush", len(DATA)), ("replace", ".hoodie/x"), ("flush", ".hoodie")]


def test_data_file_and_its_folders_are_flushed_on_request(root: str, recorder: Recorder) -> None:
    storage = LocalStorage(root, sync=True)
    stream(storage, "p/q/x", DATA)
    assert recorder.calls == [("flush", len(DATA)), ("flush", "p/q"), ("flush", "p"), ("flush", ".")]
    del recorder.calls[:]
    storage.move("p/q/x", "r/x")
    assert recorder.calls == [("rename", "r/x"), ("flush", "r"), ("flush", ".")]


def test_data_file_is_not_flushed_without_request(root: str, recorder: Recorder) -> None:
    storage = LocalStorage(root)
    stream(storage, "p/x", DATA)
    storage.move("p/x", "r/x")
    assert recorder.calls == [("rename", "r/x")]


def test_synced_write_flushes_its_data_files_before_its_commit_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": [1], "p": ["a"]})
    options = {"lakeformat.storage.sync": "true"}
    table = lakeformat.create(str(tmp_path / "t"), rows.schema, record_key="id", partition_by="p", **options)
    recorder = Recorder(tmp_path / "t", monkeypatch)
    table.upsert(rows)
    (data,) = (tmp_path / "t" / "a").glob("*.parquet")
    (commit,) = (tmp_path / "t" / ".hoodie").glob("*.commit")
    order = {call: number for number, call in enumerate(recorder.calls)}  # The last call of each kind.
    named = order["link", f".hoodie/{commit.name}"]
    assert order["flush", data.stat().st_size] < order["flush", "a"] < named < order["flush", ".hoodie"]
