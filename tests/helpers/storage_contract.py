"""The promises of every storage adapter (the docstrings of `lakeformat.storage.port.Storage`), as tests.

Subclass `SharedStorageContract` once per adapter and give the subclass a ``storage`` fixture. An adapter for one writer
at a time gets a subclass of `StorageContract`.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Event
from typing import Any

import pytest

from lakeformat.errors import CorruptTableError, LakeformatError, LockTimeoutError
from lakeformat.storage import Storage
from lakeformat.storage.port import HOODIE, OWN, Version, VersionChangedError

#: Names from partition values; some have a meaning for a shell, in a URL or for a client library.
ODD_NAMES = (
    "with space", "ünï-日本", "100%", "a=b", "%2F", "q?x=1", "[ab]*", "#tag", "a+b&c", "semi;colon", "dot.",
    "~home", "{brace}", "quote'\"",
)  # fmt: skip

ESCAPES = ("..", "../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/.", "nul\0", "a/b/")

CALLS: dict[str, Callable[[Storage, str], Any]] = {
    "create": lambda s, p: s.create(p, b"x"),
    "replace": lambda s, p: s.replace(p, b"x"),
    "read": lambda s, p: s.read(p),
    "info": lambda s, p: s.info(p),
    "list": lambda s, p: s.list(p),
    "open_input": lambda s, p: s.open_input(p),
    "open_output": lambda s, p: s.open_output(p).__enter__(),
    "move from": lambda s, p: s.move(p, "target"),
    "move to": lambda s, p: s.move("present", p),
    "touch": lambda s, p: s.touch(p),
    "subfolder": lambda s, p: s.subfolder(p),
    "make_folder": lambda s, p: s.make_folder(p),
    "delete": lambda s, p: s.delete(p),
    "delete_folder": lambda s, p: s.delete_folder(f".hoodie/{p}"),
    "remove_empty": lambda s, p: s.remove_empty(p),
    "hold": lambda s, p: s.hold(p).__enter__(),
    "is_held": lambda s, p: s.is_held(p),
    "read_versioned": lambda s, p: s.read_versioned(p),
    "replace_if absent": lambda s, p: s.replace_if(p, b"x", None),
    "replace_if": lambda s, p: s.replace_if(p, b"x", Version("1")),
}

THREADS = 16


def stream(storage: Storage, path: str, data: bytes) -> None:
    """Write a file as data files are written."""
    with storage.open_output(path) as sink:
        sink.write(data)


def try_create(storage: Storage, path: str, data: bytes) -> bool:
    """Create a file. Return whether this call created it."""
    try:
        storage.create(path, data)
    except FileExistsError:
        return False
    return True


def try_replace(storage: Storage, path: str, data: bytes, version: Version | None) -> Version | None:
    """Replace a file. Return its new version; None if another caller was first."""
    try:
        return storage.replace_if(path, data, version)
    except (FileExistsError, VersionChangedError):
        return None


def names(storage: Storage, folder: str) -> list[str]:
    """Return the names of a folder's children, without the folder that adapters may use for themselves."""
    return [entry.name for entry in storage.list(folder) if entry.path != OWN]


class StorageContract:
    """The tests of the promises. ``storage`` is empty at the start of each test.

    Attributes:
        passing_sizes: sizes that a file may have, for a moment, while it is created.
    """

    passing_sizes: frozenset[int] = frozenset()

    @pytest.mark.parametrize("data", [b"", b"first", b"x" * 200_000])
    def test_create_makes_whole_files(self, storage: Storage, data: bytes) -> None:
        storage.create("a/b/x", data)
        assert storage.read("a/b/x") == data

    @pytest.mark.parametrize("first", [b"", b"first"])
    @pytest.mark.parametrize("second", [b"", b"second"])
    def test_create_never_overwrites(self, storage: Storage, first: bytes, second: bytes) -> None:
        storage.create("a/x", first)
        with pytest.raises(FileExistsError):
            storage.create("a/x", second)
        assert storage.read("a/x") == first

    def test_versions_change_with_each_replacement(self, storage: Storage) -> None:
        first = storage.replace_if("a/x", b"1", None)
        assert storage.read_versioned("a/x") == (b"1", first)
        second = storage.replace_if("a/x", b"2", first)
        assert storage.read_versioned("a/x") == (b"2", second)
        assert second != first

    def test_only_the_version_that_was_read_is_replaced(self, storage: Storage) -> None:
        first = storage.replace_if("a/x", b"1", None)
        storage.replace_if("a/x", b"2", first)
        with pytest.raises(VersionChangedError):
            storage.replace_if("a/x", b"3", first)
        with pytest.raises(FileExistsError):
            storage.replace_if("a/x", b"4", None)
        assert storage.read("a/x") == b"2"

    def test_a_file_that_is_gone_has_no_version(self, storage: Storage) -> None:
        first = storage.replace_if("a/x", b"1", None)
        storage.delete("a/x")
        with pytest.raises(FileNotFoundError):
            storage.read_versioned("a/x")
        with pytest.raises(VersionChangedError):
            storage.replace_if("a/x", b"2", first)
        assert storage.info("a/x") is None

    def test_a_file_that_was_created_has_a_version(self, storage: Storage) -> None:
        storage.create("a/x", b"1")
        data, version = storage.read_versioned("a/x")
        assert data == b"1"
        assert storage.read_versioned("a/x")[1] == version
        assert storage.replace_if("a/x", b"2", version) != version

    def test_readers_see_all_of_a_created_file_or_nothing(self, storage: Storage) -> None:
        data = b"whole" * 100_000
        seen: list[int] = []

        def watch(name: str) -> None:
            while not seen or seen[-1] != len(data):
                found = storage.info(name)
                seen.append(len(storage.read(name)) if found is not None else -1)

        with ThreadPoolExecutor(2) as pool:
            watching = pool.submit(watch, "watched")
            storage.create("watched", data)
            watching.result()
        assert set(seen) <= {-1, len(data), *self.passing_sizes}

    def test_readers_see_the_old_or_the_new_bytes(self, storage: Storage) -> None:
        old, new = b"old" * 50_000, b"newer" * 50_000
        storage.replace("x", old)
        seen: set[bytes] = set()

        def watch() -> None:
            while new not in seen:
                seen.add(storage.read("x"))

        with ThreadPoolExecutor(2) as pool:
            watching = pool.submit(watch)
            storage.replace("x", new)
            watching.result()
        assert seen <= {old, new}
        assert storage.read("x") == new

    def test_what_is_not_there(self, storage: Storage) -> None:
        assert storage.info("a/none") is None
        assert list(storage.list("none")) == []
        storage.delete("none")
        assert storage.info("none") is None
        storage.delete_folder(".hoodie/none")
        with pytest.raises(FileNotFoundError):
            storage.read("none")
        with pytest.raises(FileNotFoundError):
            storage.open_input("none")
        with pytest.raises(FileNotFoundError):
            storage.move("none", "b")

    def test_info_and_list_agree(self, storage: Storage) -> None:
        storage.create("a/x", b"123")
        storage.create("a/empty", b"")
        storage.create("a/folder/y", b"4")
        listed = {entry.name: entry for entry in storage.list("a")}
        assert {n: (e.path, e.size_bytes, e.is_folder) for n, e in listed.items()} == {
            "empty": ("a/empty", 0, False),
            "folder": ("a/folder", 0, True),
            "x": ("a/x", 3, False),
        }
        assert list(listed) == sorted(listed)
        assert list(storage.list_at_once("a")) == list(storage.list("a"))
        for name in ("x", "empty"):
            assert storage.info(f"a/{name}") == listed[name]
        found = storage.info("a/folder")
        assert found is not None
        assert found.is_folder
        assert [name for name in names(storage, "") if name != HOODIE] == ["a"]
        assert list(storage.list("a/x")) == list(storage.list_at_once("a/x")) == []

    def test_entries_of_a_listing_reach_another_process(self, storage: Storage) -> None:
        storage.create("a/f", b"12")
        for entries in (storage.list("a"), storage.list_at_once("a")):
            (entry,) = pickle.loads(pickle.dumps(entries))  # noqa: S301  Bytes of this test.
            assert (entry.path, entry.size_bytes, entry.is_folder) == ("a/f", 2, False)

    def test_listings_are_never_old(self, storage: Storage) -> None:
        assert names(storage, "a") == []
        assert storage.info("a/x") is None
        storage.create("a/x", b"1")
        assert names(storage, "a") == ["x"]
        assert storage.info("a/x") is not None
        storage.replace("a/x", b"333")
        assert [entry.size_bytes for entry in storage.list("a")] == [3]
        storage.delete("a/x")
        assert names(storage, "a") == []

    def test_streams(self, storage: Storage) -> None:
        stream(storage, "p/data", b"abc" * 1000)
        with storage.open_input("p/data") as source:
            assert source.size() == 3000
            source.seek(1)
            assert source.read(4) == b"bcab"
        stream(storage, "p/none", b"")
        with storage.open_input("p/none") as source:
            assert source.read() == b""

    @pytest.mark.parametrize("written", [b"", b"half", b"x" * 6_000_000])
    def test_a_failing_block_leaves_no_file(self, storage: Storage, written: bytes) -> None:
        def fail() -> None:
            with storage.open_output("p/data") as sink:
                sink.write(written)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert storage.info("p/data") is None
        assert names(storage, "p") == []

    def test_subfolder_is_a_storage_of_its_own(self, storage: Storage) -> None:
        storage.subfolder("a/b").create("c", b"1")
        inner = storage.subfolder("a/b")
        assert inner.read("c") == b"1"
        assert "c" in [entry.path for entry in inner.list("")]
        assert inner.location != storage.location
        assert storage.info("c") is None
        with storage.lock(0), inner.lock(0):
            pass

    def test_move(self, storage: Storage) -> None:
        stream(storage, ".hoodie/stage/x", b"data")
        storage.move(".hoodie/stage/x", "part/x")
        assert storage.read("part/x") == b"data"
        assert storage.info(".hoodie/stage/x") is None

    def test_touch_makes_and_renews(self, storage: Storage) -> None:
        storage.touch("beats/one")
        first = storage.info("beats/one")
        storage.touch("beats/one")
        second = storage.info("beats/one")
        assert first is not None
        assert second is not None
        assert (first.size_bytes, second.size_bytes) == (0, 0)
        assert second.modified_ms >= first.modified_ms > 1_500_000_000_000

    def test_delete_takes_files_only(self, storage: Storage) -> None:
        storage.create("a/x", b"1")
        storage.create("a/y", b"2")
        with suppress(LakeformatError):  # The adapter may refuse the path, or find no file of that name.
            storage.delete("a")
        assert names(storage, "a") == ["x", "y"]

    def test_delete_all_takes_the_files_that_are_there(self, storage: Storage) -> None:
        for name in ("1", "2", "3"):
            storage.create(f"a/{name}", b"x")
        storage.delete_all([])
        storage.delete_all(["a/3", "a/none", "a/1"])
        assert names(storage, "a") == ["2"]

    def test_delete_folder_takes_all_below(self, storage: Storage) -> None:
        for path in (".hoodie/t/1", ".hoodie/t/in/2", ".hoodie/t2/3"):
            storage.create(path, b"x")
        storage.delete_folder(".hoodie/t")
        assert names(storage, ".hoodie") == ["t2"]

    @pytest.mark.parametrize("path", ["data", "data/in", ".hoodie", ".hoodiex/t", ""])
    def test_delete_folder_stays_in_hoodie(self, storage: Storage, path: str) -> None:
        for kept in ("data/in/1", ".hoodie/2", ".hoodiex/t/3"):
            storage.create(kept, b"x")
        with pytest.raises(LakeformatError):
            storage.delete_folder(path)
        assert [storage.read(kept) for kept in ("data/in/1", ".hoodie/2", ".hoodiex/t/3")] == [b"x"] * 3

    def test_made_folder_is_empty(self, storage: Storage) -> None:
        for _ in range(2):
            storage.make_folder("a/in")
        assert storage.list("a/in") == []
        storage.create("a/in/1", b"x")
        storage.make_folder("a/in")
        assert storage.read("a/in/1") == b"x"

    def test_only_empty_folders_are_removed(self, storage: Storage) -> None:
        storage.create("a/in/1", b"x")
        assert [storage.remove_empty(path) for path in ("a", "a/in")] == [False, False]
        assert storage.read("a/in/1") == b"x"
        storage.delete("a/in/1")
        assert [storage.remove_empty(path) for path in ("a/in", "a", "none")] == [True, True, True]
        assert "a" not in names(storage, "")

    @pytest.mark.parametrize("call", CALLS)
    def test_paths_that_lead_out_are_refused(self, storage: Storage, call: str) -> None:
        storage.create("present", b"1")
        for path in ESCAPES:
            with pytest.raises(CorruptTableError, match="leads out of the table"):
                CALLS[call](storage, path)

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_mean_themselves(self, storage: Storage, name: str) -> None:
        storage.create(f"{name}/neighbour", b"stays")
        storage.create("a/stays", b"stays")
        storage.create(f"{name}/created", b"1")
        storage.replace(f"{name}/created", b"22")
        stream(storage, f".hoodie/{name}/staged", b"333")
        storage.move(f".hoodie/{name}/staged", f"{name}/moved")
        storage.touch(f"{name}/touched")
        assert {e.path: e.size_bytes for e in storage.list(name)} == {
            f"{name}/{child}": size for child, size in {"created": 2, "moved": 3, "neighbour": 5, "touched": 0}.items()
        }
        storage.delete(f"{name}/moved")
        storage.create(f".hoodie/{name}/gone", b"1")
        storage.delete_folder(f".hoodie/{name}")
        assert names(storage, ".hoodie") == []
        assert names(storage, name) == ["created", "neighbour", "touched"]
        assert names(storage, "a") == ["stays"]

    def test_the_lock_excludes_and_is_freed(self, storage: Storage) -> None:
        inside: list[int] = []
        overlapped = []

        def enter(thread: int) -> None:
            with storage.lock(60):
                overlapped.append(bool(inside))
                inside.append(thread)
                storage.info("x")
                inside.pop()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(enter, range(32)))
        assert len(overlapped) == 32
        if storage.has_lock:
            assert not any(overlapped)

    def test_the_lock_is_freed_by_a_failure(self, storage: Storage) -> None:
        with pytest.raises(ZeroDivisionError), storage.lock(0):
            raise ZeroDivisionError
        entered = False
        with storage.lock(0):
            entered = True
        assert entered

    def test_a_file_is_held_by_one_until_the_block_ends(self, storage: Storage) -> None:
        storage.create("claims/x", b"1")
        assert not storage.is_held("claims/x")
        with storage.hold("claims/x"):
            assert storage.is_held("claims/x") is storage.has_lock
            assert not storage.is_held("claims/y")
            if storage.has_lock:
                with pytest.raises(LockTimeoutError), storage.hold("claims/x"):
                    pass
                assert storage.is_held("claims/x")
        assert not storage.is_held("claims/x")
        with pytest.raises(ZeroDivisionError), storage.hold("claims/x"):
            raise ZeroDivisionError
        assert not storage.is_held("claims/x")

    def test_a_file_that_is_held_may_go(self, storage: Storage) -> None:
        storage.create("claims/x", b"1")
        with storage.hold("claims/x"), storage.hold("claims/none"):
            storage.delete("claims/x")
            storage.create("claims/x2", b"2")
            assert not storage.is_held("claims/none")
            with storage.hold("claims/x2"):
                assert storage.is_held("claims/x2") is storage.has_lock
        assert names(storage, "claims") == ["x2"]


class SharedStorageContract(StorageContract):
    """The tests of storage that several writers share: of several callers one succeeds, and listings are exact.

    Attributes:
        raced_names: the number of names that several writers create at the same time.
        row_length: the number of files that are created and deleted in order.
    """

    raced_names: int = 50
    row_length: int = 3000

    @pytest.mark.parametrize("empty", [True, False])
    def test_of_many_creators_one_wins_and_its_bytes_stand(self, storage: Storage, empty: bool) -> None:
        barrier = Barrier(THREADS)

        def race(thread: int) -> list[str]:
            barrier.wait()
            return [name for name in raced if try_create(storage, name, contents[thread])]

        raced = [f"raced/{number}" for number in range(self.raced_names)]
        contents = [b"" if empty else b"%d" % thread * 1000 for thread in range(THREADS)]
        with ThreadPoolExecutor(THREADS) as pool:
            won = list(pool.map(race, range(THREADS)))
        assert Counter(name for list_ in won for name in list_) == dict.fromkeys(raced, 1)
        winners = {name: thread for thread, list_ in enumerate(won) for name in list_}
        assert all(storage.read(name) == contents[thread] for name, thread in winners.items())

    def test_of_many_replacers_one_wins_each_round(self, storage: Storage) -> None:
        def race(thread: int) -> None:
            for number in range(self.raced_names):
                while counts[thread] <= number:
                    data, version = storage.read_versioned("count")
                    count = int(data.partition(b" ")[0]) + 1
                    counts[thread] += try_replace(storage, "count", b"%d by %d" % (count, thread), version) is not None

        storage.create("count", b"0 by nobody")
        counts = [0] * 4
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(race, range(4)))
        assert int(storage.read("count").partition(b" ")[0]) == 4 * self.raced_names

    def test_a_listing_at_once_shows_one_moment(self, storage: Storage) -> None:
        """The files lie in a row: they are created, and later deleted, from the first to the last.

        From the first listing on there are always some of them.
        """
        begins, ends = Barrier(2), Event()

        def move_row() -> None:
            try:
                for start in range(0, self.row_length, 40):
                    for number in range(start, start + 40):
                        storage.create(f"row/{number}", b"")
                    if not start:
                        begins.wait()
                    for number in range(start - 20, start + 20):
                        storage.delete(f"row/{number}")
            finally:
                ends.set()

        with ThreadPoolExecutor(1) as pool:
            moved = pool.submit(move_row)
            begins.wait()
            listings: list[list[int]] = []
            while not ends.is_set() or not listings:
                listings.append(sorted(int(entry.name) for entry in storage.list_at_once("row")))
            moved.result()
        assert [] not in listings
        assert [found for found in listings if len(found) != found[-1] - found[0] + 1] == []
