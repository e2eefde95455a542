"""Writing and merging the history files of layout 2, as Hudi's LSM timeline promises.

The oracle is what was archived: a reader of the archive finds each instant once, with the data of its commit. How
many files a level has is a number of base `batch`: a merge is a carry.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakeformat.codec.timeline_files.archive import InstantToArchive
from lakeformat.codec.timeline_files.commit import encode_commit_avro
from lakeformat.model.commit import CommitMetadata
from lakeformat.storage import LocalStorage, MemoryStorage, Storage
from lakeformat.timeline.archive import read_lsm_history
from lakeformat.timeline.archive_writer import HistorySettings, compact_history, write_history
from tests.helpers.bare_table import MemoryWithoutLocks
from tests.helpers.faulty import Call, FaultyStorage, SetClock, UnlockedStorage, once
from tests.helpers.fixture_tables import FIXTURES
from tests.helpers.short_timelines import hour

FOLDER = "history"
GIGABYTE = 1 << 30
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def archived(*hours: int, action: str = "commit") -> list[InstantToArchive]:
    """Return a commit for each hour. It completed an hour later, and its metadata is the hour."""
    return [
        InstantToArchive(
            hour(each),
            hour(each + 1),
            action,
            encode_commit_avro(CommitMetadata("INSERT", {}, {"hour": str(each)})),
            b"",
            "",
        )
        for each in hours
    ]


def stored(storage: Storage, folder: str = FOLDER) -> dict[str, bytes]:
    return {entry.name: storage.read(entry.path) for entry in storage.list(folder)}


def manifest(storage: Storage) -> dict[str, int]:
    """Return the names and sizes of the newest manifest, which is the one in ``_version_``."""
    files = stored(storage)
    entries = json.loads(files[f"manifest_{int(files['_version_'])}"])["files"]
    return {entry["fileName"]: entry["fileLen"] for entry in entries}


def read(storage: Storage) -> list[tuple[str, str, str | None]]:
    """Return each archived commit: its instant time, its completion time and what its metadata holds."""
    archive = read_lsm_history(storage, FOLDER)
    found = list(archive.commits(archive.completed_in("")))
    return sorted((each.time, each.completed_at, metadata.extra.get("hour")) for each, metadata in found)


def wanted(*hours: int) -> list[tuple[str, str, str | None]]:
    return [(hour(each), hour(each + 1), str(each)) for each in sorted(hours)]


def name(first: int, last: int, level: int = 0) -> str:
    return f"{hour(first)}_{hour(last)}_{level}.parquet"


def settings(batch: int, *, most_bytes: int = GIGABYTE, kept: int = 3) -> HistorySettings:
    return HistorySettings(batch, most_bytes, kept)


def test_first_history_file_is_like_one_of_hudi() -> None:
    """Hudi: `LSMTimelineWriter`. It is sorted by time, is named by its bounds, and manifest 1 has its size."""
    storage = MemoryStorage()
    write_history(storage, FOLDER, archived(3, 1, 2))
    files = stored(storage)
    assert files.keys() == {name(1, 3), "manifest_1", "_version_"}
    assert files["_version_"] == b"1"
    assert json.loads(files["manifest_1"]) == {"files": [{"fileName": name(1, 3), "fileLen": len(files[name(1, 3)])}]}
    with zipfile.ZipFile(FIXTURES / "hudi_life/v9_cow_lsm_levels.zip") as fixture:
        path = next(path for path in fixture.namelist() if path.endswith("_2.parquet") and "/history/" in path)
        of_hudi = pq.ParquetFile(io.BytesIO(fixture.read(path)))
    ours = pq.ParquetFile(io.BytesIO(files[name(1, 3)]))
    assert ours.schema_arrow.equals(of_hudi.schema_arrow, check_metadata=False)
    assert ours.metadata.row_group(0).column(0).compression == of_hudi.metadata.row_group(0).column(0).compression
    assert ours.read()["instantTime"].to_pylist() == [hour(1), hour(2), hour(3)]
    assert ours.read()["plan"].null_count == 3
    assert read(storage) == wanted(1, 2, 3)


def test_each_write_adds_a_file_to_a_new_manifest() -> None:
    storage = MemoryStorage()
    for number in (1, 2, 3):
        write_history(storage, FOLDER, archived(number))
        assert list(manifest(storage)) == [name(each, each) for each in range(1, number + 1)]
        assert stored(storage)["_version_"] == str(number).encode()
    assert read(storage) == wanted(1, 2, 3)


def test_instants_archived_by_a_dead_run_are_not_written_again() -> None:
    storage = MemoryStorage()
    write_history(storage, FOLDER, archived(1, 3))
    before = stored(storage)
    write_history(storage, FOLDER, archived(1, 3))
    assert stored(storage) == before
    write_history(storage, FOLDER, archived(1, 2, 3))
    assert list(manifest(storage)) == [name(1, 3), name(2, 2)]
    assert stored(storage)[name(1, 3)] == before[name(1, 3)]
    before = stored(storage)
    write_history(storage, FOLDER, archived(1, 2, 3))  # Both files together have all of them.
    assert stored(storage) == before
    assert read(storage) == wanted(1, 2, 3)


def test_file_that_no_manifest_names_is_overwritten() -> None:
    """A run died before it published the manifest."""
    storage = MemoryStorage()
    storage.create(f"{FOLDER}/{name(1, 2)}", b"torn")
    write_history(storage, FOLDER, archived(1, 2))
    assert read(storage) == wanted(1, 2)


def test_manifest_torn_by_another_writer_is_replaced() -> None:
    storage = MemoryStorage()
    write_history(storage, FOLDER, archived(1))
    storage.create(f"{FOLDER}/manifest_2", b'{"files": [{"fi')
    write_history(storage, FOLDER, archived(2))
    assert list(manifest(storage)) == [name(1, 1), name(2, 2)]
    assert stored(storage)["_version_"] == b"2"
    assert read(storage) == wanted(1, 2)


@pytest.mark.parametrize("batch", [2, 3])
def test_files_per_level_count_the_writes_like_digits(batch: int) -> None:
    """Each merge takes `batch` files of a level and makes one of the next: its count is that of the carries."""
    storage, kept, writes = MemoryStorage(), 2, range(1, 23)
    for number in writes:
        write_history(storage, FOLDER, archived(number))
        carries = next(power for power in range(9) if number % batch ** (power + 1))
        assert compact_history(storage, FOLDER, settings(batch, kept=kept)) == carries
        levels = Counter(int(each.removesuffix(".parquet").rpartition("_")[2]) for each in manifest(storage))
        assert levels == Counter({at: digit for at in range(9) if (digit := number // batch**at % batch)})
        assert_sound(storage)
        manifests = sorted(int(each[9:]) for each in stored(storage) if each.startswith("manifest_"))
        if carries:
            assert manifests == list(range(max(1, manifests[-1] - kept - carries), manifests[-1] + 1))
    assert read(storage) == wanted(*writes)


def assert_sound(storage: Storage) -> None:
    """Check that each manifest's files are there with their sizes, and that nothing else is."""
    files = stored(storage)
    named: set[str] = set()
    for each, data in files.items():
        if each.startswith("manifest_"):
            entries = json.loads(data)["files"]
            assert {entry["fileName"]: entry["fileLen"] for entry in entries} == {
                entry["fileName"]: len(files[entry["fileName"]]) for entry in entries
            }
            named.update(entry["fileName"] for entry in entries)
    assert {each for each in files if each.endswith(".parquet")} == named


def four_files(storage: Storage) -> list[int]:
    """Write four files of level 0; return their sizes."""
    for number in (1, 2, 3, 4):
        write_history(storage, FOLDER, archived(number))
    return list(manifest(storage).values())


def test_oldest_files_of_a_full_level_are_merged() -> None:
    storage = MemoryStorage()
    four_files(storage)
    assert compact_history(storage, FOLDER, settings(3)) == 1
    assert list(manifest(storage)) == [name(4, 4), name(1, 3, 1)]
    assert stored(storage)["_version_"] == b"5"
    assert read(storage) == wanted(1, 2, 3, 4)


def test_level_that_is_not_full_stays() -> None:
    storage = MemoryStorage()
    assert compact_history(storage, FOLDER, settings(2)) == 0
    assert stored(storage) == {}
    four_files(storage)
    before = stored(storage)
    assert compact_history(storage, FOLDER, settings(5)) == 0
    assert stored(storage) == before


@pytest.mark.parametrize(("files", "more", "merged"), [(3, 0, 3), (3, -1, 2), (2, 0, 2), (2, -1, 0), (0, 1, 0)])
def test_merged_files_have_at_most_the_maximum_of_bytes(files: int, more: int, merged: int) -> None:
    """One file alone is not merged."""
    storage = MemoryStorage()
    most = sum(four_files(storage)[:files]) + more
    assert compact_history(storage, FOLDER, settings(4, most_bytes=most)) == (merged > 0)
    rest = [name(each, each) for each in range(merged + 1, 5)]
    assert list(manifest(storage)) == rest + ([name(1, merged, 1)] if merged else [])
    assert read(storage) == wanted(1, 2, 3, 4)


def test_merged_file_is_sorted_and_has_each_instant_once() -> None:
    storage = MemoryStorage()
    write_history(storage, FOLDER, archived(1, 4))
    write_history(storage, FOLDER, [*archived(2, 3), *archived(4, action="rollback")])
    write_history(storage, FOLDER, archived(3, 4, 5))
    assert compact_history(storage, FOLDER, settings(3)) == 1
    assert list(manifest(storage)) == [name(1, 5, 1)]
    rows = pq.read_table(io.BytesIO(stored(storage)[name(1, 5, 1)]))
    found = list(zip(rows["instantTime"].to_pylist(), rows["action"].to_pylist(), strict=True))
    commits = [(hour(each), "commit") for each in (1, 2, 3, 4, 5)]
    assert found == [*commits[:4], (hour(4), "rollback"), commits[4]]
    assert read(storage) == wanted(1, 2, 3, 4, 5)


def test_file_of_another_name_stays_as_it_is() -> None:
    """Another release may name its files otherwise, but the manifest is right."""
    storage, other = MemoryStorage(), "from-an-upgrade.parquet"
    four_files(storage)
    write_history(storage, "other", archived(0))
    data = stored(storage, "other")[name(0, 0)]
    storage.create(f"{FOLDER}/{other}", data)
    files = [{"fileName": each, "fileLen": size} for each, size in {other: len(data), **manifest(storage)}.items()]
    storage.replace(f"{FOLDER}/manifest_4", json.dumps({"files": files}).encode())
    assert compact_history(storage, FOLDER, settings(4)) == 1
    assert list(manifest(storage)) == [other, name(1, 4, 1)]
    assert read(storage) == wanted(0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("storage", "age_ms", "stays"),
    [
        (MemoryStorage(SetClock(NOW_MS)), 0, False),
        (MemoryWithoutLocks(SetClock(NOW_MS)), HOUR_MS, True),
        (MemoryWithoutLocks(SetClock(NOW_MS)), HOUR_MS + 1, False),
    ],
)
def test_unnamed_file_is_deleted_if_no_other_process_can_publish_it(
    storage: MemoryStorage, age_ms: int, stays: bool
) -> None:
    """On storage without locks another process may have written a young one for its next manifest."""
    clock: Any = storage._clock
    unnamed = f"{FOLDER}/{name(7, 9)}"
    storage.create(unnamed, b"")
    storage.create(f"{FOLDER}/notes.txt", b"not of the archive")
    clock.at_ms += age_ms
    four_files(storage)
    assert compact_history(storage, FOLDER, settings(4, kept=0)) == 1
    assert (storage.info(unnamed) is not None) == stays
    assert storage.info(f"{FOLDER}/notes.txt") is not None
    assert read(storage) == wanted(1, 2, 3, 4)


def test_unnamed_file_stays_while_nothing_is_merged() -> None:
    storage = MemoryStorage()
    storage.create(f"{FOLDER}/{name(7, 9)}", b"")
    four_files(storage)
    assert compact_history(storage, FOLDER, settings(5)) == 0
    assert storage.info(f"{FOLDER}/{name(7, 9)}") is not None


def beside(storage: LocalStorage, call: str, path: str, *hours: int) -> FaultyStorage:
    """Return a storage on which another process archives these hours, before this call for a path like this."""

    def act(_: Call) -> None:
        for each in hours:
            write_history(storage, FOLDER, archived(each))

    return FaultyStorage(storage, meanwhile=once(lambda each: each.name == call and path in each.path, act))


def test_write_begins_again_from_the_manifest_of_another_process(tmp_path: Path) -> None:
    storage = UnlockedStorage(str(tmp_path))
    write_history(beside(storage, "create", "manifest_1", 2), FOLDER, archived(1))
    assert list(manifest(storage)) == [name(2, 2), name(1, 1)]
    assert read(storage) == wanted(1, 2)


def test_merge_gives_way_to_the_manifest_of_another_process(tmp_path: Path) -> None:
    """The next run merges the files, and the file that was merged in vain is overwritten."""
    storage = UnlockedStorage(str(tmp_path))
    four_files(storage)
    assert compact_history(beside(storage, "create", "manifest_5", 5), FOLDER, settings(4)) == 0
    assert list(manifest(storage)) == [name(each, each) for each in (1, 2, 3, 4, 5)]
    assert compact_history(storage, FOLDER, settings(4)) == 1
    assert list(manifest(storage)) == [name(5, 5), name(1, 4, 1)]
    assert read(storage) == wanted(1, 2, 3, 4, 5)


def test_greater_version_of_another_process_stays(tmp_path: Path) -> None:
    """It has published the next manifest before this one writes its version."""
    storage = UnlockedStorage(str(tmp_path))
    write_history(storage, FOLDER, archived(1))
    write_history(beside(storage, "read_versioned", "_version_", 3, 4), FOLDER, archived(2))
    assert stored(storage)["_version_"] == b"4"
    assert list(manifest(storage)) == [name(each, each) for each in (1, 2, 3, 4)]


def test_version_that_another_process_writes_at_the_same_time_stays(tmp_path: Path) -> None:
    storage = UnlockedStorage(str(tmp_path))
    write_history(storage, FOLDER, archived(1))
    write_history(beside(storage, "replace_if", "_version_", 3), FOLDER, archived(2))
    assert stored(storage)["_version_"] == b"3"
    assert read(storage) == wanted(1, 2, 3)


@pytest.mark.parametrize("said", [b"x", b"1", None])
@pytest.mark.parametrize("storage", [MemoryStorage, MemoryWithoutLocks])
def test_damaged_or_missing_version_is_written_anew(storage: type[MemoryStorage], said: bytes | None) -> None:
    """Hudi deletes the file for a moment whenever it changes the archive."""
    files = storage()
    four_files(files)
    files.delete(f"{FOLDER}/_version_")
    if said is not None:
        files.create(f"{FOLDER}/_version_", said)
    write_history(files, FOLDER, archived(5))
    assert stored(files)["_version_"] == b"5"
    assert read(files) == wanted(1, 2, 3, 4, 5)
