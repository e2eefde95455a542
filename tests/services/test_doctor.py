"""The doctor and planted damage: each damage is found, repaired if possible, and no row is lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.codec.bloom import BloomFilter
from lakeformat.codec.timeline_files.commit import CHECKSUM_KEY
from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.file_index.stored import FOLDER, write_file
from lakeformat.files.footers import BLOOM, MAX_KEY
from lakeformat.services.doctor.findings import Kind
from lakeformat.storage import LocalStorage
from tests.helpers import fixture_tables
from tests.helpers.tables import a_batch, a_schema, a_table
from tests.helpers.thrift_footer import MAX, MAX_VALUE, MIN, MIN_VALUE, Struct, put_bytes, with_statistics

SCHEMA = a_schema(id="int64", region="string", v="string")
OLD = "20300101000000000"


def rows(ids: range, v: str) -> pa.Table:
    return a_batch(SCHEMA, id=ids, region=[f"r{i % 2}" for i in ids], v=v)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table with two partitions, four commits, an index and a savepoint of the last commit but one."""
    path = tmp_path_factory.mktemp("doctor") / "t"
    a_table(path, schema=SCHEMA, partition_by="region")
    table = lakeformat.open(path, **{"lakeformat.file.index.commits": 1})
    for number in range(4):
        table.upsert(rows(range(number, number + 6), f"v{number}"))
    table.savepoint(table.history()[1].instant_time)
    return path


@dataclass(frozen=True)
class Sick:
    """A table that a test damages."""

    path: Path

    @property
    def table(self) -> lakeformat.Table:
        return lakeformat.open(self.path)

    @property
    def live(self) -> Path:
        """Return the path of a live base file."""
        return self.path / self.table.context.snapshot().files[0].path

    @property
    def times(self) -> list[str]:
        return [entry.instant_time for entry in reversed(self.table.history())]

    def rewrite(self, change: Callable[[pa.Table], pa.Table], **footer: bytes) -> None:
        """Rewrite the live file with changed rows or footer entries."""
        table = pq.read_table(self.live, partitioning=None)
        changed = change(table)
        metadata = {**(table.schema.metadata or {}), **{NAMES[name]: value for name, value in footer.items()}}
        pq.write_table(changed.replace_schema_metadata(metadata), self.live)

    def copy(self, name: str) -> None:
        shutil.copy(self.live, self.live.with_name(name))


NAMES = {"bloom": BLOOM, "maximum": MAX_KEY}


def same(table: pa.Table) -> pa.Table:
    return table


def other_bytes(path: Path, at: int, count: int = 40) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + count] = bytes(byte ^ 0x5A for byte in data[at : at + count])
    path.write_bytes(data)


def wrong_in_commit(sick: Sick, count: str, by: int, at: int = -1) -> None:
    path = sick.path / ".hoodie" / f"{sick.times[at]}.commit"
    said = json.loads(path.read_text())
    for stats in said["partitionToWriteStats"].values():
        stats[0][count] += by
    del said["extraMetadata"][CHECKSUM_KEY]
    path.write_text(json.dumps(said))


def wrong_filter(sick: Sick) -> None:
    other = BloomFilter.with_capacity(10, 1e-9)
    other.add(pa.array(["nobody"]))
    sick.rewrite(same, bloom=other.encode().encode())


def elsewhere(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("_hoodie_partition_path")
    return table.set_column(at, "_hoodie_partition_path", pa.array(["r9"] * table.num_rows))


def lying_statistics(sick: Sick) -> None:
    def edit(column: str, statistics: Struct) -> None:
        if column == "id":
            for field in (MIN, MIN_VALUE, MAX, MAX_VALUE):
                put_bytes(statistics, field, (99).to_bytes(8, "little"))

    sick.live.write_bytes(with_statistics(sick.live.read_bytes(), edit))


def dead_write(sick: Sick) -> None:
    own = sick.path / ".hoodie/.lakeformat/pending"
    own.mkdir(exist_ok=True, parents=True)
    (own / OLD).write_text(json.dumps({"kind": "process", "lakeformat.token": "0" * 32}))
    (sick.path / ".hoodie" / f"{OLD}.commit.requested").touch()
    sick.copy(f"dead-0_0-0-0_{OLD}.parquet")


def foreign_write(sick: Sick) -> None:
    path = sick.path / ".hoodie" / f"{OLD}.commit.requested"
    path.touch()
    os.utime(path, (1, 1))


def lagging_metadata(sick: Sick) -> None:
    with (sick.path / ".hoodie/hoodie.properties").open("a") as file:
        file.write("hoodie.table.metadata.partitions=files\n")
    folder = sick.path / ".hoodie/metadata/.hoodie"
    folder.mkdir(parents=True)
    (folder / f"{sick.times[0]}.deltacommit").touch()


def lost_commit(sick: Sick) -> None:
    for path in (sick.path / ".hoodie").glob(f"{sick.times[1]}.*"):
        path.unlink()


def lost_savepoint(sick: Sick) -> None:
    saved = sick.table.savepoints()[0]
    (sick.path / next(path for path in saved.files if (sick.path / path) != sick.live)).unlink()


def wrong_index(sick: Sick) -> None:
    sick.copy("extra-0_0-0-0_20000101000000000.parquet")


def lying_index(sick: Sick, column: str, by: int) -> None:
    """Change a number in every shard of the index, and give each shard the right digest."""
    storage = LocalStorage(str(sick.path))
    folder = sick.path / FOLDER
    newest = max(folder.glob("manifest-*"), key=lambda path: path.name.split("-")[1])
    for path in folder.glob("delta-*"):
        path.unlink()
    manifest = pq.read_table(newest)
    written = []
    for name in manifest.column("path").to_pylist():
        shard = pq.read_table(sick.path / name)
        lie = pc.add(shard.column(column), by).cast(shard.schema.field(column).type)
        at = shard.schema.get_field_index(column)
        written.append(write_file(storage, "shard", "", shard.set_column(at, column, lie), {}))
    facts = json.loads(manifest.schema.metadata[b"lakeformat.index"])
    for at, values in enumerate(([file.path for file in written], [file.size_bytes for file in written])):
        manifest = manifest.set_column(at, manifest.schema.field(at), pa.array(values))
    newest.unlink()
    write_file(storage, "manifest", newest.name.split("-")[1], manifest, facts)


def folder_in_partition(sick: Sick) -> None:
    (sick.live.parent / "_delta_log").mkdir()
    (sick.live.parent / "_delta_log/0.json").write_text("{}")


def no_mark(sick: Sick) -> None:
    (sick.live.parent / ".hoodie_partition_metadata").unlink()


def stale_markers(sick: Sick) -> None:
    (sick.path / ".hoodie/.temp" / sick.times[0]).mkdir(parents=True)


#: The damage, the kind that the doctor must report, and whether it repairs it.
DAMAGES: list[tuple[str, Callable[[Sick], object], Kind, bool]] = [
    ("missing file", lambda s: s.live.unlink(), Kind.MISSING, False),
    ("file cut short", lambda s: s.live.write_bytes(s.live.read_bytes()[:-9]), Kind.OTHER_SIZE, False),
    ("file longer", lambda s: s.live.write_bytes(s.live.read_bytes() + b"x"), Kind.OTHER_SIZE, False),
    ("empty file", lambda s: s.live.write_bytes(b""), Kind.OTHER_SIZE, False),
    ("damaged page", lambda s: other_bytes(s.live, 60), Kind.DAMAGED, False),
    ("damaged footer", lambda s: other_bytes(s.live, s.live.stat().st_size - 60, 50), Kind.DAMAGED, False),
    ("loser of a task", lambda s: s.copy(f"loser-0_9-9-9_{s.times[-1]}.parquet"), Kind.ORPHAN, True),
    ("file of nobody", lambda s: s.copy(f"x-0_0-0-0_{int(s.times[-1]) - 1}.parquet"), Kind.ORPHAN, True),
    ("keys in two groups", wrong_index, Kind.KEY_IN_TWO_GROUPS, False),
    ("a key twice", lambda s: s.rewrite(lambda t: pa.concat_tables([t, t.slice(0, 1)])), Kind.KEY_TWICE, False),
    ("wrong partition", lambda s: s.rewrite(elsewhere), Kind.WRONG_PARTITION, False),
    ("filter denies", wrong_filter, Kind.FILTER_DENIES, False),
    ("filter torn", lambda s: s.rewrite(same, bloom=b"!!!"), Kind.NO_FILTER, False),
    ("key range", lambda s: s.rewrite(same, maximum=b"0"), Kind.KEY_RANGE, False),
    ("statistics", lying_statistics, Kind.STATISTICS, False),
    ("row count", lambda s: wrong_in_commit(s, "numWrites", 7), Kind.OTHER_ROWS, False),
    ("inserts", lambda s: wrong_in_commit(s, "numInserts", 7), Kind.OTHER_COUNTS, False),
    ("fewer inserts", lambda s: wrong_in_commit(s, "numInserts", -1), Kind.OTHER_COUNTS, False),
    ("fewer at first", lambda s: wrong_in_commit(s, "numInserts", -1, 0), Kind.OTHER_COUNTS, False),
    ("updates", lambda s: wrong_in_commit(s, "numUpdateWrites", 7), Kind.OTHER_COUNTS, False),
    ("deletes", lambda s: wrong_in_commit(s, "numDeletes", -1), Kind.OTHER_COUNTS, False),
    ("stale markers", stale_markers, Kind.STALE_MARKERS, True),
    ("dead write of ours", dead_write, Kind.DEAD_INSTANT, True),
    ("dead write of another", foreign_write, Kind.DEAD_INSTANT, True),
    ("index and no file", lambda s: s.live.unlink(), Kind.FILE_INDEX, True),
    ("index and one more", wrong_index, Kind.FILE_INDEX, True),
    ("index: least value", lambda s: lying_index(s, "min/id", 1), Kind.FILE_INDEX, True),
    ("index: greatest value", lambda s: lying_index(s, "max/id", -1), Kind.FILE_INDEX, True),
    ("index: nulls", lambda s: lying_index(s, "nulls/id", 1), Kind.FILE_INDEX, True),
    ("index: rows", lambda s: lying_index(s, "rows", -1), Kind.FILE_INDEX, True),
    ("metadata table", lagging_metadata, Kind.METADATA_TABLE, True),
    ("lost commit", lost_commit, Kind.TIMELINE_GAP, False),
    ("torn commit", lambda s: next((s.path / ".hoodie").glob("*.commit")).write_text("{"), Kind.DAMAGED_INSTANT, False),
    ("foreign folder", folder_in_partition, Kind.FOREIGN_FOLDER, False),
    ("partition mark", no_mark, Kind.NO_PARTITION_FILE, True),
    ("savepoint", lost_savepoint, Kind.SAVEPOINT, False),
]


def rows_or_error(table: lakeformat.Table) -> object:
    try:
        return sorted(table.to_arrow().to_pylist(), key=str)
    except LakeformatError as error:
        return type(error)


@pytest.mark.parametrize(("plant", "kind", "mends"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_check_finds_planted_damage_and_repair_cures_it(
    plant: Callable[[Sick], object], kind: Kind, mends: bool, template: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    shutil.copytree(template, path)
    sick = Sick(path)
    assert str(sick.table.check()) == "nothing is wrong"
    plant(sick)
    table = sick.table
    found = table.check().of(kind)
    assert found
    assert all(each.path and each.cure for each in found)
    read = rows_or_error(lakeformat.open(path, **{"lakeformat.file.index": False}))
    planned = table.repair(dry_run=True)
    assert bool(planned.of(kind)) == mends
    assert table.repair().findings == planned.findings
    assert bool(table.check().of(kind)) != mends
    if kind is not Kind.NO_PARTITION_FILE:
        assert rows_or_error(lakeformat.open(path, **{"lakeformat.file.index": False})) == read


def test_wrong_index_is_reported_with_the_command_that_removes_it(template: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(template, path)
    sick = Sick(path)
    sick.live.unlink()
    (found,) = sick.table.check().of(Kind.FILE_INDEX)
    assert found.cure == (
        "live files that only the index names: 1, that only the folders hold: 1; lakeformat repair --yes removes the "
        "index, and the next write makes it again"
    )


def test_repair_keeps_removed_files_until_purged(template: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(template, path)
    sick = Sick(path)
    sick.copy(f"loser-0_9-9-9_{sick.times[-1]}.parquet")
    removed = path / ".hoodie/.lakeformat/removed"
    sick.table.repair(dry_run=True)
    assert not removed.exists()
    sick.table.repair()
    assert [p.name for p in removed.rglob("*.parquet")] == [f"loser-0_9-9-9_{sick.times[-1]}.parquet"]
    sick.table.repair(keep=False)
    assert not removed.exists()


def last_log(path: Path) -> Path:
    """Return the newest log file of a live slice."""
    return max(path.rglob(".*.log.*"), key=lambda log: log.name.partition("_")[2])


def torn_log(path: Path) -> None:
    with last_log(path).open("ab") as file:
        file.write(b"#HUDI#half a block")


def torn_archive(path: Path) -> None:
    folder = path / ".hoodie/archived"
    folder = folder if folder.exists() and any(folder.iterdir()) else path / ".hoodie/timeline/history"
    for file in [*folder.glob(".commits_*"), *folder.glob("*.parquet")]:
        other_bytes(file, 60, file.stat().st_size * 2 // 3)


def cut_archive(path: Path) -> None:
    """Cut the last bytes off the archive, as if they were never written to the disk."""
    file = max((path / ".hoodie/archived").glob(".commits_*"))
    file.write_bytes(file.read_bytes()[:-7])


def emptied_archive(path: Path) -> None:
    max((path / ".hoodie/archived").glob(".commits_*")).write_bytes(b"")


def no_archive(path: Path) -> None:
    shutil.rmtree(path / ".hoodie/archived")


def no_history(path: Path) -> None:
    shutil.rmtree(path / ".hoodie/timeline/history")


def no_history_file(path: Path) -> None:
    min((path / ".hoodie/timeline/history").glob("*.parquet")).unlink()


@pytest.mark.parametrize(
    ("name", "plant", "kind"),
    [
        ("v6_cow_cleaned_archived", cut_archive, Kind.TORN_ARCHIVE),
        ("v6_cow_cleaned_archived", emptied_archive, Kind.TORN_ARCHIVE),
        ("v6_cow_cleaned_archived", no_archive, Kind.TIMELINE_GAP),
        ("v9_cow_lsm_levels", no_history_file, Kind.TORN_ARCHIVE),
        ("v9_cow_lsm_levels", no_history, Kind.TIMELINE_GAP),
        ("v6_mor_restored_to_savepoint", torn_log, Kind.TORN_LOG),
        ("v9_mor_savepoint_kept_by_cleaner", torn_log, Kind.TORN_LOG),
        ("v6_cow_cleaned_archived", torn_archive, Kind.TORN_ARCHIVE),
        ("v9_cow_lsm_levels", torn_archive, Kind.TORN_ARCHIVE),
        ("v6_mor_savepoint_kept_by_cleaner", lambda path: last_log(path).unlink(), Kind.MISSING),
        ("v9_mor_savepoint_kept_by_cleaner", lambda path: last_log(path).unlink(), Kind.MISSING),
    ],
)
def test_check_finds_damage_in_tables_of_hudi(
    name: str, plant: Callable[[Path], object], kind: Kind, tmp_path: Path
) -> None:
    path = fixture_tables.unpack(f"hudi_life/{name}", tmp_path)
    plant(path)
    assert lakeformat.open(path).check().of(kind)
