"""Tables that Apache Hudi wrote and we continue: a dictionary has the expected rows, and hudi-rs agrees."""

from __future__ import annotations

import datetime as dt
import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InstantNotAvailableError, Table
from lakeformat.model.record import META_COLUMNS
from tests.helpers import hudi_rs
from tests.helpers.fixture_tables import names, unpack

Key = tuple[str, str]
#: Copy-on-write tables of versions 6, 8 and 9.
TABLES = [*names("hudi_v6"), *(name for name in names("hudi_v8_v9") if "_cow_" in name)]


def by_key(rows: list[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    found = {(row["_hoodie_partition_path"], row["_hoodie_record_key"]): strip_meta(row) for row in rows}
    assert len(found) == len(rows)
    return found


def strip_meta(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in META_COLUMNS}


def record_key(table: Table, row: dict[str, Any]) -> str:
    fields = table.config.record_fields
    return str(row[fields[0]]) if len(fields) == 1 else ",".join(f"{name}:{row[name]}" for name in fields)


def later(value: Any) -> Any:
    return value + (dt.timedelta(seconds=1) if isinstance(value, dt.datetime) else 1)


def newcomers(table: Table, sample: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return rows like the sample, in its partition, with new keys."""
    field = table.config.record_fields[0]
    texts = isinstance(sample[field], str)
    return [{**sample, field: f"new-{n}" if texts else 900_000 + n} for n in range(count)]


@pytest.mark.parametrize("name", TABLES)
def test_upsert_and_delete_continue_a_hudi_table(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    ordering = table.config.ordering_field
    rows = hudi_rs.rows_by_key(table.to_arrow(meta_columns=True))
    model, schema = by_key(rows), table.schema
    assert table.config.has_metadata_table is (table.config.version == 6)
    before = states_of(table)

    changed = {
        key: row | ({ordering: later(row[ordering])} if ordering else {}) for key, row in list(model.items())[::2]
    }
    path, sample = rows[0]["_hoodie_partition_path"], strip_meta(rows[0])
    added = {(path, record_key(table, row)): row for row in newcomers(table, sample, 3)}
    assert not added.keys() & model.keys()
    result = table.upsert(pa.Table.from_pylist([*changed.values(), *added.values()], schema))
    model |= changed | added
    assert (result.report["rows"]["updated"], result.report["rows"]["inserted"]) == (len(changed), 3)
    assert by_key(hudi_rs.assert_same_rows(table)) == model

    gone = [next(iter(changed)), next(iter(added))]
    absent = {
        **sample,
        **dict.fromkeys(table.config.record_fields[:1], newcomers(table, sample, 9)[8][field(table)]),
    }
    result = table.delete(pa.Table.from_pylist([*(model[key] for key in gone), absent], schema))
    assert result.report["rows"]["deleted"] == 2
    model = {key: row for key, row in model.items() if key not in gone}
    assert by_key(hudi_rs.assert_same_rows(table)) == model

    for instant, past in before.items():
        assert hudi_rs.rows_by_key(table.to_arrow(as_of=instant, meta_columns=True)) == past
    assert_metadata_table_is_kept(table, tmp_path / Path(name).name)
    assert_times_grow(table)


def states_of(table: Table) -> dict[str, list[dict[str, Any]]]:
    """Return instant -> rows, for the instants whose files all exist."""
    found = {}
    for instant in commits(table):
        with suppress(InstantNotAvailableError):
            found[instant.time] = hudi_rs.rows_by_key(table.to_arrow(as_of=instant.time, meta_columns=True))
    assert found
    return found


def assert_times_grow(table: Table) -> None:
    """Check that from version 8 on each commit completes after all that began or completed before it."""
    times = [(instant.time, instant.completed_at) for instant in commits(table)]
    assert all(begin < end for begin, end in times) is (table.config.version != 6)
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(times))


def field(table: Table) -> str:
    return str(table.config.record_fields[0])


def commits(table: Table) -> tuple[Any, ...]:
    snapshot = table.snapshot()
    return snapshot.timeline.commits


def assert_metadata_table_is_kept(table: Table, folder: Path) -> None:
    """Check that a metadata table of Hudi's lists our files, too."""
    assert (folder / ".hoodie/metadata").exists() is table.config.has_metadata_table
    names = table.config.get("hoodie.table.metadata.partitions").split(",")
    assert ("files" in names) == (table.config.version == 6)
    assert not table.check(contents=False)
    assert not (folder / ".hoodie/hoodie.properties.backup").exists()


@pytest.mark.parametrize("name", TABLES)
def test_overwrite_continues_a_hudi_table(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    rows = hudi_rs.rows_by_key(table.to_arrow(meta_columns=True))[:2]
    table.overwrite(pa.Table.from_pylist([strip_meta(row) for row in rows], table.schema))
    assert by_key(hudi_rs.assert_same_rows(table)) == by_key(rows)
    table.insert(pa.Table.from_pylist(newcomers(table, strip_meta(rows[0]), 2), table.schema))
    assert len(hudi_rs.assert_same_rows(table)) == len(rows) + 2
