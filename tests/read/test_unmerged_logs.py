"""The merge type ``skip_merge``: rows of base files and log files side by side, as they were written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import Table
from lakeformat.config.read_options import MERGE_TYPE
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="int64", name="string", ts="int64", p="string")
SKIP = {MERGE_TYPE: "skip_merge"}
Row = tuple[int, str, int, str]

BASE: list[Row] = [(1, "n1", 1, "a"), (2, "n2", 1, "a"), (3, "n3", 1, "b")]
LOGGED: list[Row] = [(1, "u1", 2, "a"), (1, "u2", 3, "a"), (2, "low", 0, "a"), (2, "gone", 5, "a")]


def batch_of(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def logged_table(folder: Path, version: int, **options: str) -> Table:
    """Make a table of a base file and four commits of log files, and a delete of a key."""
    table = a_table(
        folder,
        rows=batch_of(*BASE),
        partition_by="p",
        ordering="ts",
        merge_on_read=True,
        version=version,
        **{"lakeformat.compact.auto": "false", **options},
    )
    for row in LOGGED:
        table.upsert(batch_of(row))
    table.delete(batch_of((2, "", 6, "a")))
    return table


def rows_of(found: pa.Table) -> list[Row]:
    return sorted(tuple(row[name] for name in SCHEMA.names) for row in found.to_pylist())


@pytest.mark.parametrize("version", [6, 8, 9])
def test_all_written_rows_are_read_in_the_order_of_their_writes(version: int, tmp_path: Path) -> None:
    logged_table(tmp_path / "t", version)
    table = lakeformat.open(tmp_path / "t", **SKIP)
    assert rows_of(table.to_arrow()) == sorted(BASE + LOGGED)
    in_order = table.read(where="p = 'a'", columns=["name"]).to_arrow()["name"].to_pylist()
    assert in_order == ["n1", "n2", *(name for _, name, _, _ in LOGGED)]
    assert rows_of(lakeformat.open(tmp_path / "t").to_arrow()) == [(1, "u2", 3, "a"), (3, "n3", 1, "b")]


@pytest.mark.parametrize("where", ["ts >= 2", "name = 'n1'", "name = 'u1'", "ts < 1", "id = 2 and ts > 0", "ts > 99"])
def test_a_condition_selects_among_the_written_rows(where: str, tmp_path: Path) -> None:
    import duckdb

    logged_table(tmp_path / "t", 9)
    written = batch_of(*BASE, *LOGGED)
    wanted = duckdb.from_arrow(written).filter(where).to_arrow_table()
    table = lakeformat.open(tmp_path / "t", **SKIP)
    assert rows_of(table.read(where=where).to_arrow()) == rows_of(wanted)
    assert table.read(where=where).count() == wanted.num_rows


def test_an_older_state_and_a_range_of_commits_are_read_unmerged(tmp_path: Path) -> None:
    instants = [each.instant_time for each in logged_table(tmp_path / "t", 6).history()]
    older, first = sorted(instants)[2], min(instants)
    table = lakeformat.open(tmp_path / "t", **SKIP)
    assert rows_of(table.to_arrow(as_of=older)) == sorted(BASE + LOGGED[:2])
    assert rows_of(table.changes(first).to_arrow()) == sorted(LOGGED)


def test_base_files_alone_and_copy_on_write_tables_are_read_as_ever(tmp_path: Path) -> None:
    logged_table(tmp_path / "t", 9)
    optimized = lakeformat.open(tmp_path / "t", **SKIP, **{"hoodie.datasource.query.type": "read_optimized"})
    assert rows_of(optimized.to_arrow()) == BASE
    plain = a_table(tmp_path / "cow", rows=batch_of(*BASE), partition_by="p", ordering="ts")
    plain.upsert(batch_of(*LOGGED[:1]))
    assert lakeformat.open(tmp_path / "cow", **SKIP).to_arrow().num_rows == len(BASE)


def test_rows_of_a_table_with_its_own_merger_can_be_read_unmerged(tmp_path: Path) -> None:
    logged_table(tmp_path / "t", 9)
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    text = properties.read_text().replace("EVENT_TIME_ORDERING", "CUSTOM")
    kept = [line for line in text.splitlines() if not line.startswith("hoodie.table.checksum")]
    properties.write_text("\n".join(kept) + "\n")
    with pytest.raises(lakeformat.UnsupportedTableError, match="merges its log files in a way that is not known"):
        lakeformat.open(tmp_path / "t").to_arrow()
    assert rows_of(lakeformat.open(tmp_path / "t", **SKIP).to_arrow()) == sorted(BASE + LOGGED)


def test_an_unknown_merge_type_is_refused(tmp_path: Path) -> None:
    a_table(tmp_path / "t", rows=a_batch(SCHEMA, id=[1], name=["n"], ts=[1], p=["a"]))
    with pytest.raises(lakeformat.InvalidOptionError, match="write one of payload_combine, skip_merge"):
        lakeformat.open(tmp_path / "t", **{MERGE_TYPE: "merge"}).to_arrow()
