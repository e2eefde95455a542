"""The storage contract for each adapter, and tests of features that only one adapter has."""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import InvalidOptionError, LockTimeoutError, StorageError
from lakeformat.storage import FsspecStorage, LocalStorage, MemoryStorage, open_storage
from tests.helpers.storage_contract import SharedStorageContract, StorageContract, stream

NUMBERS = itertools.count()


class TestMemoryStorage(SharedStorageContract):
    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()

    def test_locations_are_never_used_twice(self) -> None:
        locations = [MemoryStorage().location for _ in range(100)]  # Each is freed before the next is made.
        assert len(set(locations)) == 100


class TestFsspecStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> FsspecStorage:
        return FsspecStorage(f"memory://table-{next(NUMBERS)}")

    def test_one_writer_at_a_time_is_told_so(self, storage: FsspecStorage, caplog: pytest.LogCaptureFixture) -> None:
        schema = pa.schema({"id": pa.int64()})
        table = lakeformat.create(storage.url, schema, record_key="id")
        for number in range(2):
            table.upsert(pa.table({"id": [number]}))
        assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [0, 1]
        assert [text for text in caplog.messages if "write to it from one process only" in text] == [
            f"{storage.location} is on storage without locks and without conditional writes: write to it from one "
            "process only. If another process writes at the same time, rows may be lost; check() names them"
        ]

    def test_a_missing_package_is_named(self) -> None:
        with pytest.raises(StorageError, match="reading sftp:// needs a package that is missing"):
            open_storage("sftp://host/t").read("x")


@pytest.mark.parametrize(("url", "extra"), [("s3://b/t", "s3"), ("abfs://c@a.dfs.core.windows.net/t", "azure")])
def test_the_package_of_object_stores_is_named_if_it_is_missing(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StorageError, match=rf"needs obstore; run: pip install 'lakeformat\[{extra}\]'"):
        lakeformat.open(url)


class TestLocalStorage(SharedStorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(str(tmp_path / "table"))

    def test_storage_can_be_pickled(self, storage: LocalStorage) -> None:
        storage.create("x", b"1")
        assert pickle.loads(pickle.dumps(storage)).read("x") == b"1"  # noqa: S301  Our own bytes.

    def test_no_temporary_file_is_left(self, storage: LocalStorage) -> None:
        storage.create("x", b"1")
        storage.replace("x", b"2")
        with pytest.raises(FileExistsError):
            storage.create("x", b"3")
        assert list(storage.list(".hoodie/.lakeformat/tmp")) == []

    def test_links_out_of_the_table_are_not_followed(self, storage: LocalStorage, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        (outside / "in").mkdir(parents=True)
        (outside / "file").write_bytes(b"canary")
        (outside / "in" / "file").write_bytes(b"canary")
        storage.create("a/x", b"1")
        storage.create(".hoodie/x", b"1")
        root = Path(storage.root)
        for link in ("a/link", ".hoodie/link"):
            (root / link).symlink_to(outside)
        (root / "a" / "file").symlink_to(outside / "file")

        storage.delete("a/file")
        assert not os.path.lexists(root / "a" / "file")
        with pytest.raises(FileExistsError):
            storage.create("a/link", b"")
        for call in (
            lambda: storage.delete("a/link/file"),
            lambda: storage.delete_folder(".hoodie/link/in"),
            lambda: storage.replace("a/link/file", b"2"),
        ):
            with pytest.raises(StorageError, match="symbolic link"):
                call()
        storage.delete_folder(".hoodie/link")
        (root / ".hoodie" / "temp").mkdir()
        (root / ".hoodie" / "temp" / "link").symlink_to(outside)
        storage.delete_folder(".hoodie/temp")
        assert not os.path.lexists(root / ".hoodie" / "link")
        assert (outside / "file").read_bytes() == (outside / "in" / "file").read_bytes() == b"canary"

    def test_a_table_behind_a_link(self, storage: LocalStorage, tmp_path: Path) -> None:
        storage.create("a/x", b"1")
        (tmp_path / "alias").symlink_to(storage.root)
        alias = LocalStorage(str(tmp_path / "alias"))
        alias.delete("a/x")
        assert storage.info("a/x") is None

    def test_the_lock_excludes_processes_and_dies_with_its_holder(self, storage: LocalStorage) -> None:
        script = (
            "import sys; from lakeformat.storage import LocalStorage\n"
            "with LocalStorage(sys.argv[1]).lock(5):\n"
            "    print('held', flush=True); sys.stdin.read()\n"
        )
        command = [sys.executable, "-c", script, storage.root]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(LockTimeoutError, match="another writer held the lock"), storage.lock(0.05):
                pass
            holder.kill()
            holder.wait()
            entered = False
            with storage.lock(5):
                entered = True
        assert entered

    def test_errors_name_the_table(self, storage: LocalStorage) -> None:
        storage.create("file", b"")
        storage.create(".hoodie/.lakeformat", b"")
        calls: dict[str, Callable[[], object]] = {
            "cannot create file/y/x in": lambda: storage.create("file/y/x", b"1"),
            "cannot write file/y/x in": lambda: stream(storage, "file/y/x", b"1"),
            "cannot touch file/y/x in": lambda: storage.touch("file/y/x"),
            "cannot lock .hoodie/.lakeformat/lock in": lambda: storage.lock(0).__enter__(),
        }
        for said, call in calls.items():
            with pytest.raises(StorageError, match=f"{said} {storage.root}: "):
                call()

    def test_hadoop_checksum_files_are_deleted_with_their_file(self, storage: LocalStorage) -> None:
        for path in ("replaced", "deleted"):
            storage.create(path, b"1")
            storage.create(f".{path}.crc", b"stale")
        storage.replace("replaced", b"2")
        storage.delete("deleted")
        assert [entry.name for entry in storage.list("")] == [".hoodie", "replaced"]


class TestLocalStorageWithoutHardLinks(SharedStorageContract):
    passing_sizes = frozenset({0})

    @pytest.fixture
    def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
        return LocalStorage(str(tmp_path / "table"))


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/data/t", "/data/t"),
        ("file:///data/t", "/data/t"),
        ("file:/data/t/", "/data/t"),
        ("FILE:///data/t", "/data/t"),
        ("file:///data/a%20b?c#d", "/data/a%20b?c#d"),  # Spark and Hadoop read it like this: nothing is decoded.
        ("s3://bucket/t", "s3://bucket/t"),
        ("s3://user:pass@bucket/t", "s3://bucket/t"),
        ("abfs://box@account.dfs.core.windows.net/t", "abfs://box@account.dfs.core.windows.net/t"),
    ],
)
def test_paths_and_urls_are_normalised(path: str, location: str) -> None:
    assert open_storage(path).location == location


@pytest.mark.parametrize("url", ["file://data/t", "file://localhost/data/t", "file:data/t", "file:"])
def test_a_file_url_that_names_a_host_or_no_full_path_is_refused(url: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"^'file:.*; write file:///"):
        open_storage(url)
