"""Reading the archive of layout 2: which manifest and which history files are read, and what is refused.

The oracle is what was archived, or an error that names the damaged file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat.codec.timeline_files.archive import HISTORY, InstantToArchive
from lakeformat.codec.timeline_files.commit import encode_commit_avro
from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import LocalStorage, MemoryStorage, Storage
from lakeformat.timeline.archive import Manifest, find_version_damage, read_lsm_history, read_manifest
from lakeformat.timeline.archive_writer import HistorySettings, compact_history, write_history
from tests.helpers.faulty import Call, FaultyStorage, once
from tests.helpers.short_timelines import hour
from tests.helpers.thrift_footer import Struct, with_footer

FOLDER = "history"


def row(at: int, action: str = "commit", *, ended: int | None = None, data: bytes | None = b"?") -> dict[str, Any]:
    """Return the row of an instant of this hour. A commit has its hour as metadata by default."""
    metadata = encode_commit_avro(CommitMetadata("INSERT", {}, {"hour": str(at)})) if data == b"?" else data
    ended = at if ended is None else ended
    values = (hour(at), hour(ended), action, metadata, None, 1)
    return dict(zip(HISTORY.names, values, strict=True))


def put_manifest(storage: Storage, number: int, names: list[str]) -> None:
    files = [{"fileName": name, "fileLen": len(storage.read(f"{FOLDER}/{name}"))} for name in names]
    storage.replace(f"{FOLDER}/manifest_{number}", json.dumps({"files": files}).encode())


def put_history(files: dict[str, list[dict[str, Any]]], *, group_rows: int = 2) -> MemoryStorage:
    """Return an archive with these files, and `group_rows` rows per row group."""
    storage = MemoryStorage()
    for name, rows in files.items():
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, HISTORY), sink, row_group_size=group_rows)
        storage.create(f"{FOLDER}/{name}", sink.getvalue().to_pybytes())
    put_manifest(storage, 1, list(files))
    storage.create(f"{FOLDER}/_version_", b"1")
    return storage


def name(first: int, last: int, level: int = 0) -> str:
    return f"{hour(first)}_{hour(last)}_{level}.parquet"


def manifests(*names: str, version: bytes | None = None) -> MemoryStorage:
    """Return an archive with these empty manifests and this version."""
    storage = MemoryStorage()
    for each in names:
        storage.create(f"{FOLDER}/{each}", b'{"files": []}')
    if version is not None:
        storage.create(f"{FOLDER}/_version_", version)
    return storage


def data_of(storage: Storage) -> dict[str, str | None]:
    """Return what the metadata of each archived commit holds, by time."""
    archive = read_lsm_history(storage, FOLDER)
    return {each.time: data.extra.get("hour") for each, data in archive.commits(archive.completed_in(""))}


@pytest.mark.parametrize(
    ("names", "version", "number"),
    [
        ((), None, -1),
        (("notes.txt", "manifest_7.crc", "x_manifest_8"), None, -1),
        (("manifest_1",), b"1", 1),
        (("manifest_1",), None, 1),  # Hudi deletes the version for a moment.
        (("manifest_9", "manifest_10", "manifest_11.tmp"), b"10\n", 10),
        (("manifest_9", "manifest_10"), b"9", 10),  # A writer is between manifest and version.
        (("manifest_8", "manifest_9", "manifest_10"), b"8", 10),
        (("manifest_10",), b"", 10),
        (("manifest_10",), b"1234567890", 10),
        (("manifest_123456789",), b"123456789", 123456789),
    ],
)
def test_manifest_of_the_greatest_number_is_read(names: tuple[str, ...], version: bytes | None, number: int) -> None:
    found = read_manifest(manifests(*names, version=version), FOLDER)
    assert (found.number, list(found.files)) == (number, [])


@pytest.mark.parametrize(
    ("newest", "version", "said"),
    [(3, b"4", "manifest_4, which is missing; manifest_3 is the newest"), (None, b"1", "manifest_1.*no manifest is")],
)
def test_version_of_a_missing_manifest_is_refused(newest: int | None, version: bytes, said: str) -> None:
    names = [f"manifest_{newest}"] if newest else []
    with pytest.raises(CorruptTableError, match=said):
        read_manifest(manifests(*names, version=version), FOLDER)


@pytest.mark.parametrize(
    ("names", "version", "said"),
    [
        ((), None, ""),
        ((), b"x", ""),
        (("manifest_5",), None, ""),
        (("manifest_5",), b"5", ""),
        (("manifest_5",), b"4", ""),
        (("manifest_5",), b"3", "says 3 and is damaged"),
        (("manifest_5",), b"x", "holds no number and is damaged"),
        (("manifest_5",), b"-1", "holds no number and is damaged"),
        (("manifest_5",), b"1234567890", "holds no number and is damaged"),
    ],
)
def test_version_that_hides_manifests_is_damaged(
    names: tuple[str, ...], version: bytes | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = manifests(*names, version=version)
    assert find_version_damage(storage, FOLDER) == said
    assert said in caplog.text
    assert bool(caplog.records) == bool(said)


@pytest.mark.parametrize(("version", "number"), [(b"4", 4), (b"3", None), (b"5", None), (b"x", None), (None, None)])
def test_torn_manifest_is_passed_over_only_while_it_is_written(version: bytes | None, number: int | None) -> None:
    storage = manifests("manifest_3", "manifest_4", version=version)
    storage.create(f"{FOLDER}/manifest_5", b'{"files": [{')
    if number is not None:
        assert read_manifest(storage, FOLDER) == Manifest(number, [])
        return
    with pytest.raises(CorruptTableError, match="manifest_5"):
        read_manifest(storage, FOLDER)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "is not a manifest"),
        ({"fileName": "a", "fileLen": 1}, "is not a manifest"),
        (["a"], "is not a manifest"),
        ([{"fileName": "a", "fileLen": 1}, "a"], "is not a manifest"),
        ([{"fileName": "a", "fileLen": 1}, {"fileLen": 1}], "is not a manifest"),
        ([{"fileName": "a", "fileLen": 1}, {"fileName": "", "fileLen": 1}], "is not a manifest"),
        ([{"fileName": "a", "fileLen": 1}] * 2, "names a file twice"),
        ([{"fileName": "a", "fileLen": 2}], "has 1 bytes, not 2 as manifest_1 says"),
        ([{"fileName": "a"}], "has 1 bytes, not None"),
    ],
)
def test_manifest_that_is_none_is_refused(files: Any, said: str) -> None:
    storage = MemoryStorage()
    storage.create(f"{FOLDER}/a", b"1")
    storage.create(f"{FOLDER}/manifest_1", json.dumps({"files": files}).encode())
    with pytest.raises(CorruptTableError, match=said):
        read_manifest(storage, FOLDER)


def test_manifest_lists_files_with_their_sizes() -> None:
    storage = MemoryStorage()
    for each in ("a", "b", "c"):
        storage.create(f"{FOLDER}/{each}", each.encode())
    put_manifest(storage, 1, ["b", "a"])
    assert read_manifest(storage, FOLDER).names == ["b", "a"]
    storage.delete(f"{FOLDER}/a")
    with pytest.raises(FileNotFoundError, match=f"{FOLDER}/a"):
        read_manifest(storage, FOLDER)


def test_instants_of_all_files_are_found_once_in_order() -> None:
    """Bounds are completion times: the first is excluded, the last included."""
    storage = put_history(
        {
            name(3, 6): [row(3, ended=8), row(4, "clean"), row(6)],
            name(1, 3, 1): [row(1, ended=5), row(2, "replacecommit", ended=9), row(3, ended=8)],
        }
    )
    archive = read_lsm_history(storage, FOLDER)
    commits = {
        1: Instant(hour(1), Action.COMMIT, State.COMPLETED, hour(5)),
        2: Instant(hour(2), Action.REPLACE_COMMIT, State.COMPLETED, hour(9)),
        3: Instant(hour(3), Action.COMMIT, State.COMPLETED, hour(8)),
        6: Instant(hour(6), Action.COMMIT, State.COMPLETED, hour(6)),
    }
    assert archive.columns["time"].to_pylist() == [hour(each) for each in (1, 2, 3, 4, 6)]
    assert archive.completed_in("") == (commits[1], commits[6], commits[3], commits[2])
    assert archive.completed_in(hour(5)) == (commits[6], commits[3], commits[2])
    assert archive.completed_in(hour(5), hour(8)) == (commits[6], commits[3])
    assert archive.completed_in(hour(4), hour(7)) == (commits[1], commits[6])
    assert archive.completion_times([hour(3), hour(4), hour(7)]) == {hour(3): hour(8)}
    assert archive.of_actions([Action.CLEAN]) == [Instant(hour(4), Action.CLEAN, State.COMPLETED)]
    assert data_of(storage) == {hour(each): str(each) for each in commits}


def test_commits_are_read_from_the_row_groups_that_have_them() -> None:
    """A clean may have the time of a commit. Hudi keeps an instant that was archived twice."""
    rows = [row(1), row(2, "clean", data=b"x"), row(2), row(3), row(3), row(4, "clean", data=b"x"), row(5)]
    for group_rows in range(1, 8):
        storage = put_history({name(1, 5): rows}, group_rows=group_rows)
        archive = read_lsm_history(storage, FOLDER)
        commits = archive.completed_in("")
        assert [each.time for each in commits] == [hour(each) for each in (1, 2, 3, 5)]
        for chosen in (commits, commits[:1], commits[1:3], commits[3:], ()):
            found = {each: data.extra.get("hour") for each, data in archive.commits(chosen)}
            assert found == {each: str(int(each.time[8:10])) for each in chosen}


@pytest.mark.parametrize("data", [None, b""])
def test_commit_without_data_is_refused(data: bytes | None) -> None:
    storage = put_history({name(1, 2): [row(1), row(2, data=data)]})
    with pytest.raises(CorruptTableError, match=rf"{name(1, 2)} \(instant {hour(2)}\) is empty"):
        data_of(storage)


@pytest.mark.parametrize(("since", "numbers"), [(0, (1, 3, 5)), (3, (1, 3, 5)), (4, (1, 3, 5)), (5, (1, 5)), (7, (1,))])
def test_only_files_that_may_have_later_commits_are_read(since: int, numbers: tuple[int, ...]) -> None:
    """The name of a file tells its last instant. The file with another name, here that of hour 1, may have any."""
    of = {1: "upgraded_x.parquet", 3: name(3, 4), 5: name(5, 6)}
    storage = put_history({of[each]: [row(each), row(each + 1)] for each in of})
    archive = read_lsm_history(storage, FOLDER, hour(since) if since else "")
    assert archive.files == tuple(f"{FOLDER}/{of[each]}" for each in numbers)
    assert archive.columns["time"].to_pylist() == [hour(at) for each in numbers for at in (each, each + 1)]


@pytest.mark.parametrize(
    "other",
    ["x.parquet", f"{hour(1)}_0.parquet", f"{hour(2)}_{hour(1)}_0.parquet", f"{hour(1)}_{hour(1)}_0_a.parquet"],
)
def test_file_of_an_unknown_name_is_always_read(other: str) -> None:
    storage = put_history({other: [row(9)], name(1, 1): [row(1)]})
    assert read_lsm_history(storage, FOLDER, hour(5)).columns["time"].to_pylist() == [hour(9)]


def test_file_of_one_instant_is_left_out_if_it_is_older() -> None:
    storage = put_history({name(1, 1): [row(1)], name(5, 5): [row(5)]})
    assert read_lsm_history(storage, FOLDER, hour(5)).columns["time"].to_pylist() == [hour(5)]


@pytest.mark.parametrize("column", ["instantTime", "completionTime", "action"])
def test_history_with_a_missing_value_is_refused(column: str) -> None:
    storage = put_history({name(1, 2): [row(1), {**row(2), column: None}]})
    with pytest.raises(CorruptTableError, match=f"{name(1, 2)} does not hold all the instants"):
        read_lsm_history(storage, FOLDER)


@pytest.mark.parametrize("rows", [1, 3])
def test_history_that_has_not_the_rows_of_its_footer_is_refused(rows: int) -> None:
    """It is not merged either: then the damage could not be seen any more."""
    files = {name(1, 4): [row(each) for each in (1, 2, 3, 4)], name(5, 5): [row(5)]}
    storage, path = put_history(files), f"{FOLDER}/{name(1, 4)}"

    def edit(footer: Struct) -> None:
        group: Struct = footer[4][1][1][0]
        assert group[3][1] == 2 * 2  # Thrift doubles whole numbers that are not negative.
        group[3] = (group[3][0], 2 * rows)

    storage.replace(path, with_footer(storage.read(path), edit))
    put_manifest(storage, 1, list(files))
    said = f"{name(1, 4)} does not hold all the instants of its footer"
    with pytest.raises(CorruptTableError, match=said):
        read_lsm_history(storage, FOLDER)
    with pytest.raises(CorruptTableError, match=said):
        compact_history(storage, FOLDER, HistorySettings(2, 1 << 30, 3))
    assert read_manifest(storage, FOLDER).names == list(files)


def test_file_that_is_no_history_is_refused() -> None:
    storage = put_history({name(1, 2): [row(1), row(2)]})
    storage.replace(f"{FOLDER}/{name(1, 2)}", b"PAR1" * 5)
    put_manifest(storage, 1, [name(1, 2)])
    with pytest.raises(CorruptTableError, match=f"{name(1, 2)} is not a readable history: .*; restore it from a copy"):
        read_lsm_history(storage, FOLDER)


def test_commit_that_is_not_archived_is_named() -> None:
    storage = put_history({name(1, 2): [row(1), row(2, "clean")]})
    missing = [Instant(hour(each), Action.COMMIT, State.COMPLETED) for each in (2, 3)]
    with pytest.raises(CorruptTableError, match=f"has no commit {hour(2)}; restore it"):
        list(read_lsm_history(storage, FOLDER).commits(missing))


def test_reader_survives_merges_after_it_read_the_manifest(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))

    def write(*hours: int) -> None:
        for each in hours:
            data = encode_commit_avro(CommitMetadata("INSERT", {}, {"hour": str(each)}))
            write_history(storage, FOLDER, [InstantToArchive(hour(each), hour(each), "commit", data, b"", "")])

    def merge_all(_: Call) -> None:
        compact_history(storage, FOLDER, HistorySettings(2, 1 << 30, 0))
        write(3, 4)
        compact_history(storage, FOLDER, HistorySettings(2, 1 << 30, 0))

    write(1, 2)
    beside = FaultyStorage(storage, meanwhile=once(lambda call: call.name == "open_input", merge_all))
    assert data_of(beside) == {hour(each): str(each) for each in (1, 2, 3, 4)}
    assert read_manifest(storage, FOLDER).names == [name(1, 4, 2)]


def test_missing_history_file_is_named() -> None:
    storage = put_history({name(1, 2): [row(1), row(2)]})
    storage.delete(f"{FOLDER}/{name(1, 2)}")
    with pytest.raises(CorruptTableError, match=f"is missing: {FOLDER}/{name(1, 2)}; restore it from a copy"):
        read_lsm_history(storage, FOLDER)
