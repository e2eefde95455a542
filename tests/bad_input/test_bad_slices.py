"""Damaged or inconsistent merge-on-read tables give one clear line, and no row is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import CorruptTableError
from lakeformat.files.log_reader import read_blocks
from tests.helpers.clustered import all_rows, all_rows_by_hudi_rs
from tests.helpers.fixture_tables import unpack

SIX, NINE = "hudi_mor_v6/mor6_partitioned_deletes", "hudi_v8_v9/v9_mor_compacted_partitioned"
BOTH = pytest.mark.parametrize("name", [SIX, NINE])


def log_of(table: lakeformat.Table) -> Path:
    """Return the path of a log file of a live slice."""
    logs = (log.path for piece in table.snapshot().each_slice() for log in piece.logs)
    return Path(table.context.storage.location) / next(logs)


def each_use(table: lakeformat.Table) -> list[Callable[[], object]]:
    return [table.to_arrow, table.compact, table.cluster, lambda: table.delete(where="true")]


@BOTH
@pytest.mark.parametrize("kept", [0, 0.5, 0.99])
def test_truncated_committed_log_file_is_refused(name: str, kept: float, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    table = lakeformat.open(folder)
    before, log = all_rows(table), log_of(table)
    whole = log.read_bytes()
    log.write_bytes(whole[: int(len(whole) * kept)])
    for use in each_use(lakeformat.open(folder)):
        with pytest.raises(CorruptTableError, match=rf"{re.escape(log.name)} .* bytes of the .*; restore it"):
            use()
    log.write_bytes(whole)
    assert all_rows(lakeformat.open(folder)) == before


@BOTH
@pytest.mark.parametrize("plan", ["compaction", "clustering"])
def test_compaction_plan_that_names_a_missing_file_is_refused(plan: str, name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    table = lakeformat.open(folder)
    before, log = all_rows(table), log_of(table)
    planned = getattr(table, f"schedule_{plan}")(*([table.schema.names[0]] if plan == "clustering" else []))
    assert planned
    log.rename(tmp_path / "kept")
    with pytest.raises(CorruptTableError, match=rf"{re.escape(log.name)} .*is missing; restore it"):
        getattr(lakeformat.open(folder), f"run_{plan}")()
    (tmp_path / "kept").rename(log)
    assert getattr(lakeformat.open(folder), f"run_{plan}")().instant_time == planned
    assert all_rows(lakeformat.open(folder)) == before


def test_completion_time_in_the_future_hides_no_later_commit(tmp_path: Path) -> None:
    """Later commits get even later completion times, whatever the clock shows, so none of them is hidden."""
    folder = unpack(NINE, tmp_path)
    newest = max((folder / ".hoodie" / "timeline").glob("*.deltacommit"))
    newest.rename(newest.with_name(f"{newest.name.partition('_')[0]}_20991231235959999.deltacommit"))
    table = lakeformat.open(folder)
    before = table.to_arrow()
    table.upsert(before.slice(0, 2))
    assert table.to_arrow().num_rows == before.num_rows
    table.compact()
    table.upsert(before.slice(1, 2))
    after = table.to_arrow()
    order = [(column, "ascending") for column in before.column_names[:1]]
    assert after.sort_by(order).equals(before.sort_by(order))
    assert all_rows_by_hudi_rs(table) == all_rows(table)
    times = [instant.completed_at for instant in table.snapshot().timeline.commits[-3:]]
    assert times == sorted(set(times))
    assert times[0] > "20991231235959999"


@BOTH
def test_slice_with_avro_and_parquet_blocks_is_read(name: str, tmp_path: Path) -> None:
    """Log files with blocks written by Hudi and by us, of one kind or of two, are merged in their order."""
    table = lakeformat.open(unpack(name, tmp_path))
    rows = table.to_arrow()
    table.upsert(rows)
    storage = table.context.storage
    mixed = [
        {block.kind.name for log in piece.logs for block in read_blocks(storage, log)}
        for piece in table.snapshot().each_slice()
    ]
    assert any({"AVRO_DATA", "PARQUET_DATA"} <= kinds for kinds in mixed), mixed
    before = all_rows(table)
    assert all_rows_by_hudi_rs(table) == before
    table.cluster()
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before


@BOTH
def test_compaction_plan_of_another_program_covers_our_file_groups(name: str, tmp_path: Path) -> None:
    """Appends go to the slices that the plan opens.

    The plan leaves out replaced groups. Clustering leaves its groups alone.
    """
    folder = unpack(name, tmp_path)
    table = lakeformat.open(folder)
    planned = table.schedule_compaction()
    rows = table.to_arrow()
    table.upsert(rows.slice(0, 2))
    paths = table.to_arrow(meta_columns=True).column("_hoodie_partition_path").to_pylist()
    table.delete_partitions(paths[0])
    before = all_rows(table)
    table.cluster()
    assert all_rows(table) == before
    assert lakeformat.open(folder).run_compaction().instant_time == planned
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    assert table.to_arrow().num_rows == rows.num_rows - paths.count(paths[0])
