"""A read lists the files from Hudi's metadata table. It finds the same files and rows as a listing of the folders."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.errors import CorruptTableError, InstantNotAvailableError, LakeformatError
from lakeformat.storage import LocalStorage
from lakeformat.table import Table
from tests.helpers.faulty import FaultyStorage
from tests.helpers.fixture_tables import names, read_expectations, unpack
from tests.services.test_doctor_metadata import cut_off_files, lose_all_logs_of_files, lose_properties

TABLES = names("hudi_metadata")
V6, V9 = "hudi_metadata/v6_cow_overwrite_clean", "hudi_metadata/v9_mor_compacted"
SOURCE = "listed from the metadata table"


def open_both(folder: Path) -> tuple[lakeformat.Table, lakeformat.Table]:
    """Open a table twice: with the metadata table, and without it."""
    return lakeformat.open(folder), lakeformat.open(folder, **{"hoodie.metadata.enable": "false"})


def rows_of(table: lakeformat.Table, as_of: str | None = None) -> list[dict[str, Any]]:
    rows = table.to_arrow(as_of=as_of, meta_columns=True).to_pylist()
    return sorted(rows, key=lambda row: str(row["_hoodie_record_key"]))


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InstantNotAvailableError as error:
        return str(error)


@pytest.mark.parametrize("name", TABLES)
def test_files_and_rows_of_every_instant_are_those_of_the_folders(name: str, tmp_path: Path) -> None:
    listed, walked = open_both(unpack(name, tmp_path))
    assert listed.snapshot().source.name == "metadata table"
    assert walked.snapshot().source.name == "folders"
    instants = [None, *(instant.time for instant in walked.snapshot().timeline.instants)]
    seen = 0
    for as_of in instants:
        files = outcome(lambda as_of=as_of: walked.files(as_of=as_of).sort_by("path"))
        assert outcome(lambda as_of=as_of: listed.files(as_of=as_of).sort_by("path")) == files
        if isinstance(files, pa.Table):
            seen += 1
            assert listed.snapshot(as_of).source.name == "metadata table"
            assert rows_of(listed, as_of) == rows_of(walked, as_of)
    assert seen > 1
    assert len(rows_of(listed)) == len(read_expectations(name)["snapshot"])


def test_read_optimized_and_incremental_reads_find_the_same_rows(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    for options in (
        {"hoodie.datasource.query.type": "read_optimized"},
        {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "000"},
    ):
        listed = lakeformat.open(folder, **options)
        walked = lakeformat.open(folder, **options, **{"hoodie.metadata.enable": "false"})
        assert listed.snapshot().source.name == "metadata table"
        assert rows_of(listed) == rows_of(walked)


def test_explain_names_the_source_of_the_files(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    listed, walked = open_both(folder)
    assert listed.explain().splitlines()[-1] == SOURCE
    assert walked.explain().splitlines()[-1] == (
        "listed from the folders (the metadata table is switched off, or the read hides commits)"
    )
    cut_off_files(folder)
    assert "listed from the folders (the metadata table cannot be used: " in listed.explain()
    own = lakeformat.create(tmp_path / "own", {"id": "int64"}, record_key="id")
    own.insert([{"id": 1}])
    assert own.explain().splitlines()[-1] in {"listed from the folders", "listed from the file index"}


def test_read_that_hides_commits_lists_the_folders(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    listed, walked = open_both(folder)
    begin = walked.snapshot().timeline.commits[0].completed_at
    end = walked.snapshot().timeline.commits[-2].completed_at
    changed = [table.changes(since=begin, until=end) for table in (listed, walked)]
    assert changed[0].snapshot.source.name == "folders"
    assert changed[0].to_arrow().sort_by("id") == changed[1].to_arrow().sort_by("id")


@pytest.mark.parametrize("name", TABLES)
def test_table_that_lakeformat_has_written_is_listed_from_its_metadata_table(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    written = lakeformat.open(folder, **{"lakeformat.file.index": "false"})
    row = written.to_arrow(limit=1).to_pylist()[0]
    for write in (
        lambda: written.upsert([{**row, "ts": 99}]),
        lambda: written.insert([{**row, "id": "new"}]),
        lambda: written.delete(where="id = 'new'"),
        written.clean,
    ):
        write()
        listed, walked = open_both(folder)
        assert listed.snapshot().source.name == "metadata table"
        assert listed.files().sort_by("path") == walked.files().sort_by("path")
        assert rows_of(listed) == rows_of(walked)


# --- damage ---------------------------------------------------------------------------------------


def fall_behind(table: Path) -> None:
    """Remove the newest write from the metadata table's timeline."""
    for path in table.glob(f".hoodie/metadata/.hoodie/**/{last_write(table)}*"):
        path.unlink()


def run_ahead(table: Path) -> None:
    """Add a deltacommit to the metadata table, as of a write that has left nothing on the table's timeline."""
    last = last_write(table)
    (path,) = table.glob(f".hoodie/metadata/.hoodie/**/{last}*.deltacommit")
    ghost = str(int(last) - 1)
    path.with_name(path.name.replace(last, ghost)).write_bytes(path.read_bytes())


def last_write(table: Path) -> str:
    return lakeformat.open(table).snapshot().timeline.commits[-1].time


def lose_files_group(table: Path) -> None:
    for path in table.glob(".hoodie/metadata/files/*files-0000-0_*"):
        path.unlink()


def be_of_another_version(table: Path) -> None:
    path = table / ".hoodie/metadata/.hoodie/hoodie.properties"
    path.write_text(
        "".join(
            "hoodie.table.version=7\n" if line.startswith("hoodie.table.version") else line
            for line in path.read_text().splitlines(keepends=True)
        )
    )


def lose_timeline(table: Path) -> None:
    for path in table.glob(".hoodie/metadata/.hoodie/**/*commit"):
        path.unlink()


DAMAGES: dict[Callable[[Path], None], str] = {
    cut_off_files: r"\.hfile is not a whole HFile",
    lose_all_logs_of_files: r" is missing",
    lose_files_group: r"files has no files, though hoodie\.properties names it",
    lose_properties: r"hoodie\.properties is missing",
    be_of_another_version: r"version 7 of a metadata table is not supported",
    lose_timeline: r"has no completed instant",
    fall_behind: r"it lacks instant \d+ of the table",
    run_ahead: r"it has instant \d+, which the table does not have",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["v9_cow_delete_partition", "v8_mor_compacted", "v6_mor_compacted"])
def test_damaged_metadata_table_is_left_aside_with_one_line(
    name: str, damage: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unpack(f"hudi_metadata/{name}", tmp_path)
    damage(folder)
    listed, walked = open_both(folder)
    expected = rows_of(walked)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lakeformat"):
        assert rows_of(listed) == expected
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{listed.location}: the folders were listed: the metadata table cannot be used: ")
    assert "\n" not in line
    assert "restore it from a copy" not in line
    assert listed.snapshot().source.name == "folders"


@pytest.mark.parametrize("name", TABLES)
def test_write_that_died_before_its_commit_stays_invisible(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unpack(name, tmp_path)
    last = last_write(folder)
    for path in folder.glob(f".hoodie/**/{last}*commit"):
        if "metadata" not in path.parts:
            path.unlink()
    listed, walked = open_both(folder)
    assert rows_of(listed) == rows_of(walked)
    assert listed.snapshot().source.name == "metadata table"
    assert caplog.messages == []


def test_file_that_the_metadata_table_lacks_is_found_in_the_folders(tmp_path: Path) -> None:
    """Without any deltacommit of a write, its timeline does not show that it lacks writes; the commits do."""
    folder = unpack(V6, tmp_path)
    for path in folder.glob(".hoodie/metadata/.hoodie/2026*"):
        path.unlink()
    for path in folder.glob(".hoodie/metadata/files/*.hfile"):
        if "_2026" in path.name:
            path.unlink()
    listed, walked = open_both(folder)
    assert rows_of(listed) == rows_of(walked)
    assert "is missing" in listed.snapshot().source.reason


def test_file_that_is_missing_in_the_folders_too_is_an_error(tmp_path: Path) -> None:
    folder = unpack(V6, tmp_path)
    fall_behind(folder)
    listed, walked = open_both(folder)
    (folder / walked.files().to_pylist()[-1]["path"]).unlink()
    for table in (listed, walked):
        with pytest.raises(CorruptTableError, match="is missing; restore it from a copy"):
            table.snapshot()


def test_file_that_has_gone_since_is_an_error_of_the_read(tmp_path: Path) -> None:
    folder = unpack(V6, tmp_path)
    listed, _ = open_both(folder)
    path = listed.files().to_pylist()[-1]["path"]
    (folder / path).unlink()
    with pytest.raises(LakeformatError, match=path.rpartition("/")[2]):
        listed.to_arrow()


def test_past_is_listed_from_the_folders_while_files_are_cleaned(tmp_path: Path) -> None:
    folder = unpack(V6, tmp_path)
    listed, walked = open_both(folder)
    as_of = walked.snapshot().timeline.commits[-1].time
    (clean,) = folder.glob(".hoodie/*.clean")
    clean.unlink()
    assert listed.snapshot().source.name == "metadata table"
    assert listed.snapshot(as_of).source.reason == "files are being deleted, so the metadata table is not used"
    assert rows_of(listed, as_of) == rows_of(walked, as_of)


# --- cost -----------------------------------------------------------------------------------------


def test_table_without_a_metadata_table_is_read_with_the_same_storage_calls(tmp_path: Path) -> None:
    own = lakeformat.create(tmp_path / "own", {"id": "int64"}, record_key="id", **{"lakeformat.file.index": "false"})
    own.insert([{"id": 1}])
    calls = []
    for used in ("true", "true", "false"):  # The first read fills the cache of commits.
        storage = FaultyStorage(LocalStorage(str(tmp_path / "own")))
        resolved = resolve({"hoodie.metadata.enable": used})
        assert Table(storage, resolved).snapshot().live.count == 1
        calls.append([(call.name, call.path) for call in storage.calls])
    assert calls[1] == calls[2]
    assert not [path for _, path in calls[0] if "metadata" in path]


def test_folders_of_partitions_are_not_listed(tmp_path: Path) -> None:
    folder = unpack(V9, tmp_path)
    storage = FaultyStorage(LocalStorage(str(folder)))
    assert len(Table(storage, resolve({})).snapshot().live.partitions()) > 1
    listed = [call.path for call in storage.calls if call.name == "list"]
    assert [path for path in listed if not path.startswith(".hoodie")] == []
