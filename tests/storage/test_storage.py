"""The storage contract for each adapter, and tests of features that only one adapter has."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import InvalidOptionError, LockTimeoutError, StorageError, UnsupportedTableError
from lakeformat.storage import FsspecStorage, LocalStorage, MemoryStorage, open_storage
from tests.helpers.s3_server import SECRET, new_folder, s3_server
from tests.helpers.storage_contract import StorageContract, stream

#: Options that make a client give up at the first failure.
AT_ONCE = {"config_kwargs": {"retries": {"max_attempts": 0}}}


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, Any]]:
    with s3_server() as options:
        yield options


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()

    def test_locations_are_never_used_twice(self) -> None:
        locations = [MemoryStorage().location for _ in range(100)]  # Each is freed before the next is made.
        assert len(set(locations)) == 100


class TestFsspecStorage(StorageContract):
    raced_names = 10  # A call to S3 takes milliseconds.

    @pytest.fixture
    def storage(self, s3: Mapping[str, Any]) -> FsspecStorage:
        return new_folder(s3)

    def test_files_of_other_writers_are_visible(self, storage: FsspecStorage) -> None:
        other = pickle.loads(pickle.dumps(storage))  # noqa: S301  Our own bytes.
        assert list(storage.list("a")) == []
        assert storage.info("a/x") is None
        other.create("a/x", b"theirs")
        assert [entry.name for entry in storage.list("a")] == ["x"]
        assert storage.read("a/x") == b"theirs"
        other.delete("a/x")
        assert list(storage.list("a")) == []

    def test_secrets_do_not_show(self, s3: Mapping[str, Any]) -> None:
        nowhere = {**s3, "client_kwargs": {**s3["client_kwargs"], "endpoint_url": "http://127.0.0.1:9"}}
        storage = FsspecStorage(f"s3://user:{SECRET}@lake/t", {**nowhere, **AT_ONCE})
        texts = [repr(storage), str(storage), storage.location, repr(lakeformat.Table(storage))]
        for call in (lambda: storage.read("x"), lambda: storage.create("x", b"1"), lambda: storage.list("x")):
            with pytest.raises(StorageError) as caught:
                call()
            texts += [str(caught.value), repr(caught.value)]
        assert not [text for text in texts if SECRET in text]
        assert not [text for text in texts if "\n" in text]

    def test_a_network_that_is_down_is_a_storage_error(self, s3: Mapping[str, Any]) -> None:
        nowhere = {**s3, "client_kwargs": {**s3["client_kwargs"], "endpoint_url": "http://127.0.0.1:9"}}
        storage = FsspecStorage("s3://lake/t", {**nowhere, **AT_ONCE})
        calls: dict[str, Callable[[], object]] = {
            "read": lambda: storage.read("x"),
            "info": lambda: storage.info("x"),
            "create": lambda: storage.create("x", b"1"),
            "delete": lambda: storage.delete("x"),
            "open_input": lambda: storage.open_input("x"),
            "open_output": lambda: stream(storage, "x", b"1" * 6_000_000),
            "delete_folder": lambda: storage.delete_folder(".hoodie/x"),
        }
        for call in calls.values():
            with pytest.raises(StorageError, match=r"cannot .*check the address, the credentials"):
                call()

    def test_a_wrong_bucket_is_one_line(self, s3: Mapping[str, Any]) -> None:
        with pytest.raises(StorageError) as caught:
            FsspecStorage("s3://no-such-bucket/t", dict(s3)).create("x", b"1")
        assert "no-such-bucket/t" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_stores_without_put_if_absent_are_not_written(self) -> None:
        storage = open_storage("memory://somewhere/t")
        with pytest.raises(UnsupportedTableError, match="memory://"):
            storage.create("x", b"1")

    def test_lost_answer_is_distinguished_from_a_lost_race(self, storage: FsspecStorage) -> None:
        """A client repeats a request that was applied but not answered, and then finds its own object."""
        ours = b'{"lakeformat.token": "ours"}'
        storage.replace("claim", ours)
        storage.create("claim", ours)
        with pytest.raises(FileExistsError):
            storage.create("claim", b'{"lakeformat.token": "theirs"}')

    def test_table_on_s3_is_written_and_read(self, s3: Mapping[str, Any]) -> None:
        storage = new_folder(s3)
        columns = {"id": pa.int64(), "region": pa.string(), "ts": pa.int64(), "v": pa.string()}
        lakeformat.create(
            storage.url,
            pa.schema(columns),
            record_key="id",
            partition_by="region",
            ordering="ts",
            storage_options=dict(s3),
        )
        table = lakeformat.open(storage.url, storage_options=dict(s3))
        rows = {n: {"id": n, "region": f"r {n % 3}*", "ts": 1, "v": "a"} for n in range(30)}
        table.bulk_insert(pa.Table.from_pylist(list(rows.values()), pa.schema(columns)))
        changed = {n: {"id": n, "region": f"r {n % 3}*", "ts": 2, "v": "b"} for n in range(20, 40)}
        table.upsert(pa.Table.from_pylist(list(changed.values()), pa.schema(columns)))
        gone = {n: (rows | changed)[n] for n in (0, 25, 39)}
        table.delete(pa.Table.from_pylist(list(gone.values()), pa.schema(columns)).select(["id", "region"]))
        expected = {n: row for n, row in (rows | changed).items() if n not in gone}
        found = table.to_arrow(meta_columns=False).to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == [expected[n] for n in sorted(expected)]
        assert [entry.name for entry in storage.list(".hoodie/.lakeformat/pending")] == []
        assert [entry.name for entry in storage.list(".hoodie/.temp")] == []


class TestLocalStorage(StorageContract):
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

        assert storage.delete("a/file") is True
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
        assert alias.delete("a/x") is True
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

    def test_data_files_are_flushed_on_request(self, tmp_path: Path) -> None:
        storage = LocalStorage(str(tmp_path / "synced"), sync=True)
        stream(storage, "p/x", b"data")
        assert storage.read("p/x") == b"data"

    def test_hadoop_checksum_files_are_deleted_with_their_file(self, storage: LocalStorage) -> None:
        for path in ("replaced", "deleted"):
            storage.create(path, b"1")
            storage.create(f".{path}.crc", b"stale")
        storage.replace("replaced", b"2")
        storage.delete("deleted")
        assert [entry.name for entry in storage.list("")] == [".hoodie", "replaced"]


class TestLocalStorageWithoutHardLinks(StorageContract):
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
