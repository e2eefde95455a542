"""What check says about a metadata table that disagrees with the table, and that repair makes it again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.services.doctor.findings import Finding, Kind
from tests.helpers.fixture_tables import unpack

FIXTURES = ["v9_cow_delete_partition", "v9_mor_compacted", "v8_cow_clustered", "v8_mor_compacted", "v6_mor_compacted"]


def newest_files_base(table: Path) -> Path:
    return max(table.glob(".hoodie/metadata/files/*.hfile"), key=lambda path: path.name.rpartition("_")[2])


def lose_all_logs_of_files(table: Path) -> None:
    for log in table.glob(".hoodie/metadata/files/.files-0000-0_*.log.*"):
        log.unlink()


def lose_file(table: Path) -> None:
    next(path for path in sorted(table.glob("**/*.parquet")) if is_live(table, path)).unlink()


def lengthen_live_file(table: Path) -> None:
    path = next(path for path in sorted(table.glob("**/*.parquet")) if is_live(table, path))
    path.write_bytes(path.read_bytes() + b"\0")


def is_live(table: Path, path: Path) -> bool:
    return path.relative_to(table).as_posix() in {file["path"] for file in lakeformat.open(table).files().to_pylist()}


def cut_off_files(table: Path) -> None:
    path = newest_files_base(table)
    path.write_bytes(path.read_bytes()[:-1])


def lose_file_group(table: Path) -> None:
    for path in table.glob(".hoodie/metadata/column_stats/*col-stats-0000-0_*"):
        path.unlink()


def lose_properties(table: Path) -> None:
    (table / ".hoodie/metadata/.hoodie/hoodie.properties").unlink()


DAMAGES = {
    r"\(it lacks \d+ live files: Hudi does not see their rows\)": lose_all_logs_of_files,
    r"\(it names 1 files that are gone\)": lose_file,
    r"\(it has other sizes for 1 live files, here [\d,]+ bytes for [\d,]+\)": lengthen_live_file,
    r"\(it cannot be read: .*\.hfile is not a whole HFile: .*\)": cut_off_files,
    r"\(it cannot be read: .*column_stats lacks file group 0 of \d+; .*\)": lose_file_group,
    r"\(it cannot be read: .*hoodie\.properties is missing, .*\)": lose_properties,
}


def metadata_findings(path: Path) -> tuple[Finding, ...]:
    return lakeformat.open(path).check(contents=False).of(Kind.METADATA_TABLE)


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize(("text", "damage"), DAMAGES.items(), ids=[each.__name__ for each in DAMAGES.values()])
def test_metadata_table_that_disagrees_is_one_finding_that_repair_mends(
    name: str, text: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    table = unpack(f"hudi_metadata/{name}", tmp_path)
    assert metadata_findings(table) == ()
    names = set(lakeformat.open(table).config.metadata_partitions)
    damage(table)
    found = metadata_findings(table)
    cure = re.compile(rf"lakeformat repair --yes makes the metadata table again {text}")
    assert sum(cure.fullmatch(each.cure) is not None for each in found) == 1
    assert all(each.mends for each in found)
    assert len(found) == 1 or damage is lose_all_logs_of_files  # The logs know of deleted files, too.
    assert lakeformat.open(table).repair().of(Kind.METADATA_TABLE) == found
    assert metadata_findings(table) == ()
    is_made = damage not in {lose_file, lengthen_live_file}  # Else a file that a commit names is damaged.
    assert (table / ".hoodie/metadata/files").exists() == is_made
    assert {index.name for index in lakeformat.open(table).indexes()} == (names if is_made else set())


def test_file_that_a_clean_has_deleted_before_it_died_is_no_finding(tmp_path: Path) -> None:
    table = unpack("hudi_metadata/v9_cow_delete_partition", tmp_path)
    lose_file(table)
    for completed in table.glob(".hoodie/timeline/*.clean"):
        completed.unlink()
    assert metadata_findings(table) == ()
