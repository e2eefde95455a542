"""Which blocks of a metadata table count, and what its reader says about damage."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lakeformat.codec.log_blocks import BlockKind, HeaderKey, encode_block
from lakeformat.errors import CorruptTableError, LakeformatError, UnsupportedTableError
from lakeformat.metadata_table.deltacommit import MetadataChanges, write_deltacommit
from lakeformat.metadata_table.instants import MetadataInstants
from lakeformat.metadata_table.metadata_table import MetadataTable, open_metadata_table
from lakeformat.metadata_table.names import BaseName, LogName, MetadataPartition
from lakeformat.model.table_version import table_version
from lakeformat.storage import SystemClock, open_storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_2
from tests.helpers.fixture_tables import names, unpack

V9 = "hudi_metadata/v9_cow_delete_partition"
V6 = "hudi_metadata/v6_cow_overwrite_clean"
#: The last write of each fixture before its clean.
V9_LAST, V6_LAST = "20261124120843732", "20261124120305429"
NEWEST = table_version(9)


def open_table(folder: Path) -> MetadataTable:
    store = TimelineStore(open_storage(str(folder)))
    table = open_metadata_table(store.storage, store.config(), store.load())
    assert table is not None
    return table


def file_names(folder: Path) -> set[str]:
    return set(open_table(folder).files()["file_name"].to_pylist())


def of_instant(names: set[str], time: str) -> set[str]:
    return {name for name in names if f"_{time}.parquet" in name}


@pytest.mark.parametrize(("name", "time"), [(V9, V9_LAST), (V6, V6_LAST)])
def test_block_of_a_commit_that_is_pending_does_not_count(name: str, time: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    before = file_names(folder)
    assert of_instant(before, time)
    (completed,) = (path for path in folder.glob(f".hoodie/**/{time}*commit") if "metadata" not in path.parts)
    completed.unlink()
    assert file_names(folder) == before - of_instant(before, time)


def test_key_of_a_pending_commit_is_where_it_was_before(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    assert open_table(folder).record_index(pa.array(["k001"]))["partition_path"].to_pylist() == ["region=us"]
    for completed in folder.glob(f".hoodie/timeline/{V9_LAST}_*.commit"):
        completed.unlink()
    assert len(open_table(folder).record_index(pa.array(["k001"]))) == 0


@pytest.mark.parametrize(("name", "time"), [(V9, V9_LAST), (V6, V6_LAST)])
def test_block_that_the_metadata_table_has_not_completed_does_not_count(name: str, time: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    before = file_names(folder)
    for completed in folder.glob(f".hoodie/metadata/.hoodie/**/{time}*.deltacommit"):
        completed.unlink()
    assert file_names(folder) == before - of_instant(before, time)


def test_rollback_block_takes_back_the_blocks_of_its_instant(tmp_path: Path) -> None:
    folder = unpack(V6, tmp_path)
    before = file_names(folder)
    header = {
        HeaderKey.INSTANT_TIME: "20261124130000000006",
        HeaderKey.TARGET_INSTANT_TIME: V6_LAST,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    log = folder / ".hoodie/metadata/files/.files-0000-0_20261124120244436001.log.9_0-0-0"
    log.write_bytes(encode_block(BlockKind.COMMAND, header, b""))
    assert file_names(folder) == before - of_instant(before, V6_LAST)


def test_base_file_of_a_compaction_that_is_pending_does_not_count(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    expected = open_table(folder).record_index().sort_by("key")
    for completed in folder.glob(".hoodie/metadata/.hoodie/timeline/20261124120824008_*.commit"):
        completed.unlink()
    assert open_table(folder).record_index().sort_by("key") == expected


def test_table_without_the_property_has_no_metadata_table(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    path = folder / ".hoodie/hoodie.properties"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if "metadata.partitions" not in line))
    store = TimelineStore(open_storage(str(folder)))
    assert open_metadata_table(store.storage, store.config(), store.load()) is None


# --- damage ---------------------------------------------------------------------------------------


READERS = {
    "files": MetadataTable.files,
    "column_stats": MetadataTable.column_stats,
    "record_index": MetadataTable.record_index,
}


def record_index_files(folder: Path, number: int) -> list[Path]:
    return list(folder.glob(f".hoodie/metadata/record_index/*record-index-{number:04}-0_*"))


@pytest.mark.parametrize("name", [V9, V6])
def test_file_group_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    for path in record_index_files(folder, 1):
        path.unlink()
    with pytest.raises(CorruptTableError, match=r"record_index lacks file group 1 of 4; run repair\(\)"):
        open_table(folder).record_index(pa.array(["k000"]))


@pytest.mark.parametrize("name", [V9, V6])
def test_last_file_group_that_is_missing_is_noticed_by_the_keys_of_the_others(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    for path in record_index_files(folder, 3):
        path.unlink()
    with pytest.raises(CorruptTableError, match=r"has keys of another file group than [012] of 3"):
        open_table(folder).record_index()


def lose_last_group(folder: Path, groups: int) -> None:
    for path in record_index_files(folder, groups - 1):
        path.unlink()


def copy_last_group(folder: Path, groups: int) -> None:
    """Add a file group behind the last one, with the same keys."""
    for path in record_index_files(folder, groups - 1):
        shutil.copy(path, path.with_name(path.name.replace(f"-{groups - 1:04}-", f"-{groups:04}-")))


def add_empty_group(folder: Path, groups: int) -> None:
    """Add a file group without keys behind the last one."""
    for path in record_index_files(folder, groups - 1):
        if "_0000000000000" in path.name and ".log.1_" in path.name:  # What each file group begins with.
            shutil.copy(path, path.with_name(path.name.replace(f"-{groups - 1:04}-", f"-{groups:04}-")))


@pytest.mark.parametrize("damage", [lose_last_group, copy_last_group, add_empty_group])
@pytest.mark.parametrize("name", names("hudi_metadata"))
def test_wrong_number_of_file_groups_is_noticed_whatever_key_is_looked_up(
    name: str, damage: Callable[[Path, int], None], tmp_path: Path
) -> None:
    folder = unpack(name, tmp_path)
    before = open_table(folder)
    keys = before.record_index()["key"].to_pylist()
    groups = len(before.list_slices(MetadataPartition.RECORD_INDEX))
    damage(folder, groups)
    damaged = open_table(folder)
    assert len(damaged.list_slices(MetadataPartition.RECORD_INDEX)) != groups
    for key in [*keys, "none"]:
        with pytest.raises(CorruptTableError, match=r"(lacks|of another) file group .*; run repair|would miss keys"):
            damaged.look_up(pa.array([key]))
    with pytest.raises(CorruptTableError):
        damaged.check_file_groups()
    changes = MetadataChanges({}, {MetadataPartition.RECORD_INDEX: pa.array(keys[:1])})
    with pytest.raises(CorruptTableError):
        write_deltacommit(damaged, "29990101000000000", changes, SystemClock())


@pytest.mark.parametrize("name", names("hudi_metadata"))
def test_number_of_file_groups_is_known_without_instants_that_name_them(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    keys = open_table(folder).record_index()["key"].to_pylist()
    for path in (folder / ".hoodie/metadata/.hoodie").rglob("*commit"):
        path.write_bytes(path.read_bytes().replace(b"record-index-", b"record_index_"))
    assert sorted(open_table(folder).record_index(pa.array(keys))["key"].to_pylist()) == sorted(keys)


def test_file_group_under_the_number_of_another_is_noticed(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    for path in record_index_files(folder, 2):
        path.unlink()
    for path in record_index_files(folder, 1):
        shutil.copy(path, path.with_name(path.name.replace("record-index-0001", "record-index-0002")))
    with pytest.raises(CorruptTableError, match="has keys of another file group than 2 of 4"):
        open_table(folder).record_index()


@pytest.mark.parametrize("name", [V9, V6])
def test_hfile_that_is_cut_off_is_named(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    bases = sorted(path for part in READERS for path in folder.glob(f".hoodie/metadata/{part}/*.hfile"))
    instants = {path: path.stem.rpartition("_")[2] for path in bases}
    newest = [path for path in bases if instants[path] == max(instants.values())]
    assert len(newest) == 7
    for path in newest:
        data = path.read_bytes()
        for size in (100, len(data) - 1):
            path.write_bytes(data[:size])
            with pytest.raises(CorruptTableError, match=rf"{path.name} is not a whole HFile: .*; restore it"):
                READERS[path.parent.name](open_table(folder))
        path.write_bytes(data)


def test_damage_of_any_log_file_gives_one_line(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    for path in sorted(folder.glob(".hoodie/metadata/record_index/.*_20261124120840994.log.*")):
        data = path.read_bytes()
        for at in range(0, len(data), 397):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
            try:
                open_table(folder).record_index()
            except LakeformatError as error:
                if "\n" in str(error):
                    raise
        path.write_bytes(data)


@pytest.mark.parametrize("lost", ["files", ".hoodie"])
def test_folder_that_is_missing_is_named(lost: str, tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    shutil.rmtree(folder / ".hoodie/metadata" / lost)
    with pytest.raises(CorruptTableError, match=r"repair\(\)"):
        open_table(folder).files()


def test_index_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    for path in record_index_files(folder, 1):
        path.rename(path.with_name(path.name.replace("record-index-0001", "record-index-region=eu-0001")))
    with pytest.raises(UnsupportedTableError, match="record-index-region=eu-0001-0"):
        open_table(folder).record_index()
    path = folder / ".hoodie/hoodie.properties"
    path.write_text(path.read_text().replace("record_index", "secondary_index_idx"))
    with pytest.raises(CorruptTableError, match="has no partition record_index"):
        open_table(folder).record_index()


def test_names_after_a_partition_was_added_are_read() -> None:
    """Version 6 adds 010 to the time of an instant that fills a new partition, and 001 to that of a compaction."""
    base = BaseName.match("files-0000-0_16-417-1063_20261126071619147010001.hfile")
    log = LogName.match(".files-0000-0_20261126071619147010001.log.1_4-446-1155")
    assert base is not None
    assert log is not None
    assert base.instant_time == log.instant_time == "20261126071619147010001"
    names = ["20261126071619147010.deltacommit", "20261126071619147010001.commit", "20261126071619147.deltacommit"]
    found = MetadataInstants.of_file_names(names, Timeline(()), table_version(6))
    assert found.has_base("20261126071619147010001")
    assert (found.filled, found.applied) == ({"20261126071619147010"}, {"20261126071619147"})


def test_clean_that_the_table_has_archived_is_not_unknown() -> None:
    """The table archives cleans that are newer than its oldest commit, if the metadata table has merged them."""
    times = {number: f"202611240000{number:02}000" for number in range(10)}
    commits = [f"{times[number]}_{times[number + 1]}.commit" for number in (1, 7, 8)]
    table = Timeline.of_file_names(commits, None, LAYOUT_2)
    names = [f"{times[number]}_{times[number + 1]}.deltacommit" for number in (1, 3, 7, 8)]
    assert MetadataInstants.of_file_names(names, table, NEWEST).find_unknown(table) == times[3]
    names.append(f"{times[5]}_{times[6]}.commit")
    assert MetadataInstants.of_file_names(names, table, NEWEST).find_unknown(table) is None


@pytest.mark.parametrize(
    ("of_table", "of_metadata", "is_known"),
    [
        ("2_9.restore", "3_4.restore", True),
        ("2_9.restore", "6_7.restore", False),  # It follows the deltacommit.
        ("2_9.restore", "", False),
        ("2_4.restore", "3_4.restore", False),  # It was completed before the deltacommit began.
        ("2.restore.inflight", "3_4.restore", False),
        ("6_9.restore", "3_4.restore", False),
        ("2_9.rollback", "3_4.restore", False),
    ],
)
def test_deltacommit_of_a_restore_by_hudi_is_known(of_table: str, of_metadata: str, is_known: bool) -> None:
    """Hudi restores the metadata table, too. A deltacommit with a time of its own then lists what differs."""

    def at(second: int) -> str:
        return f"202611240000{second:02}000"

    def instants(*texts: str) -> list[str]:
        return [re.sub(r"\d+", lambda found: at(int(found[0])), text) for text in texts if text]

    table = Timeline.of_file_names(instants("1_1.commit", of_table, "10_10.commit"), None, LAYOUT_2)
    names = instants("1_1.deltacommit", of_metadata, "5_6.deltacommit", "10_10.deltacommit")
    assert MetadataInstants.of_file_names(names, table, NEWEST).find_unknown(table) == (None if is_known else at(5))
    names += instants("7_8.deltacommit")  # Another one is never known.
    assert MetadataInstants.of_file_names(names, table, NEWEST).find_unknown(table) == at(7 if is_known else 5)
