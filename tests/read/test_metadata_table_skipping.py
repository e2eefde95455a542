"""A read skips files by the column statistics of Hudi's metadata table, and never one that holds a match."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.file_system_view.metadata_bounds import bounds_of_files
from lakeformat.metadata_table.names import bloom_key, partition_prefix, statistics_prefix
from lakeformat.predicate import ColumnBounds
from tests.helpers.fixture_tables import names, unpack

TABLES = [name for name in names("hudi_metadata") if "_cow_" in name]
WITH_LOGS = [name for name in names("hudi_metadata") if "_mor_" in name]
V6, V9 = "hudi_metadata/v6_cow_overwrite_clean", "hudi_metadata/v9_cow_delete_partition"
FILTERS = [
    "ts = 5",
    "ts > 5",
    "qty is null",
    "qty < 3 and ts <> 5",
    "amount > 0",
    "amount < -1",
    "price between -0.04 and 1",
    "day <= date '1969-12-21'",
    "at >= timestamp '2024-01-01 00:00:01.000001'",
    "name = 'again'",
    "name > 'm'",
    "id in ('k003', 'k004')",
    "ok",
    "not ok",
    "_hoodie_record_key = 'k001'",
    "region = 'eu'",
    "region = 'nowhere'",
    "ts > 1000000",
]


def bounds_of(table: lakeformat.Table, column: str) -> tuple[list[str], ColumnBounds | None]:
    (portion,) = table.snapshot().live.portions([column])
    files = portion.files
    paths = [
        f"{path}/{name}".lstrip("/")
        for path, name in zip(files["partition_path"].to_pylist(), files["name"].to_pylist(), strict=True)
    ]
    return paths, portion.bounds.get(column)


@pytest.mark.parametrize("name", TABLES)
def test_bounds_are_those_of_the_rows(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    table = lakeformat.open(folder)
    known = 0
    for field in table.schema:
        paths, found = bounds_of(table, field.name)
        if found is None:
            continue
        assert found.minimum.type == field.type
        stored = [pq.read_table(folder / path, columns=[field.name], partitioning=None)[field.name] for path in paths]
        for at, values in enumerate(stored):
            counts = {"min": found.minimum[at].as_py(), "max": found.maximum[at].as_py()}
            is_known = counts["min"] is not None
            if is_known and values.null_count < len(values):
                known += 1
                least = pc.min_max(values.cast(field.type)).as_py()
                assert counts == least, (field.name, paths[at])
            assert found.null_count[at].as_py() in {None, values.null_count}
    assert known >= 3 * len(paths)


@pytest.mark.parametrize("name", TABLES)
def test_filters_find_the_rows_that_a_read_without_skipping_finds(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    table = lakeformat.open(folder)
    whole = lakeformat.open(folder, **{"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"})
    skipped = 0
    for where in FILTERS:
        found = table.to_arrow(["id"], where=where, verify=True)["id"].to_pylist()
        assert sorted(found) == sorted(whole.to_arrow(["id"], where=where)["id"].to_pylist()), where
        plan = table.read(where=where).plan()
        skipped += plan.files_after_stats < plan.files
    assert skipped > 3  # One of the tables has a single file.


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_LOGS)
def test_slices_with_log_files_are_skipped_if_none_of_their_files_may_match(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    table = lakeformat.open(folder)
    rows = table.to_arrow()
    assert_skips(table, at_least=3)
    table.upsert(changed(rows.slice(0, 2), 70))
    assert_skips(table, at_least=3)
    table.delete(rows.slice(1, 1))
    table.delete(rows.slice(5, 1))
    assert_skips(table, at_least=3)
    table.upsert(changed(rows.slice(5, 1), 80))
    assert_skips(table, at_least=3)


def changed(rows: pa.Table, ts: int) -> pa.Table:
    values = pa.array([ts] * len(rows), rows["ts"].type)
    return rows.set_column(rows.schema.get_field_index("ts"), "ts", values)


def assert_skips(table: lakeformat.Table, *, at_least: int) -> None:
    """Check that filters find all rows, and that the plans of some leave out slices."""
    whole = lakeformat.open(
        table.location, **{"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}
    )
    skipped = 0
    for where in [*FILTERS, "ts = 70", "ts > 75", "ts = 80 or id = 'k001'"]:
        found = table.to_arrow(["id"], where=where, verify=True)["id"].to_pylist()
        assert sorted(found) == sorted(whole.to_arrow(["id"], where=where)["id"].to_pylist()), where
        plan = table.read(where=where).plan()
        skipped += plan.files_after_stats < plan.files
    assert skipped >= at_least


def test_a_slice_whose_files_do_not_match_is_not_opened(tmp_path: Path) -> None:
    folder = unpack("hudi_metadata/v9_mor_compacted", tmp_path)
    table = lakeformat.open(folder)
    table.upsert(changed(table.to_arrow().slice(0, 3), 70))
    assert any(piece.logs for piece in table.snapshot().each_slice())
    first, *others = sorted(folder.glob("*/*.parquet"))  # Its schema is read.
    assert first.parent.name == "region=asia"
    for path in [*others, *folder.glob("*/.*.log.*")]:
        path.write_bytes(b"x" * path.stat().st_size)
    table = lakeformat.open(folder)
    plan = table.read(["id"], where="ts > 70").plan()
    assert (plan.files_after_stats, plan.splits) == (0, ())
    assert table.to_arrow(["id"], where="ts > 70").num_rows == 0


def test_explain_says_for_how_many_files_bounds_are_known(tmp_path: Path) -> None:
    table = lakeformat.open(unpack(V9, tmp_path))
    count = table.snapshot().live.count
    assert table.explain(where="ts = 5").splitlines()[-1] == (
        f"listed from the metadata table; it has the bounds of {count} files"
    )
    assert table.explain().splitlines()[-1] == "listed from the metadata table"


def test_no_footer_is_opened_for_files_with_bounds(tmp_path: Path) -> None:
    folder = unpack(V6, tmp_path)
    table = lakeformat.open(folder)
    for path in folder.glob("**/*.parquet"):
        path.write_bytes(b"x" * path.stat().st_size)
    plan = table.read(["id"], where="ts > 1000000").plan()
    assert (plan.files_after_stats, plan.splits) == (0, ())
    assert table.to_arrow(["id"], where="ts > 1000000").num_rows == 0


@pytest.mark.parametrize("name", [V6, V9])
def test_damaged_statistics_skip_nothing_and_log_one_line(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unpack(name, tmp_path)
    for path in [
        *folder.glob(".hoodie/metadata/column_stats/*.hfile"),
        *folder.glob(".hoodie/metadata/column_stats/.*.log.*"),
    ]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    table = lakeformat.open(folder)
    whole = lakeformat.open(folder, **{"hoodie.metadata.enable": "false"})
    with caplog.at_level(logging.WARNING, "lakeformat"):
        found = sorted(table.to_arrow(["id"], where="ts = 5")["id"].to_pylist())
    (line,) = caplog.messages
    assert line.startswith(f"{table.location}: no file is skipped by the metadata table: ")
    assert found == sorted(whole.to_arrow(["id"], where="ts = 5")["id"].to_pylist())


# --- bounds that are not used ---------------------------------------------------------------------


def statistics(rows: list[tuple[str, str, Any, Any, int | None]], wrapper: str, data_type: pa.DataType) -> pa.Table:
    """Return rows of statistics: partition path, file name, minimum, maximum, number of nulls."""
    keys = [
        statistics_prefix("c") + partition_prefix(path) + bloom_key(path, name)[len(partition_prefix(path)) :]
        for path, name, *_ in rows
    ]
    return pa.table(
        {
            "key": pa.array(keys),
            "file_name": pa.array([name for _, name, *_ in rows]),
            "values": pa.array([9] * len(rows), pa.int64()),
            "nulls": pa.array([row[4] for row in rows], pa.int64()),
            f"min.{wrapper}": pa.array([row[2] for row in rows], data_type),
            f"max.{wrapper}": pa.array([row[3] for row in rows], data_type),
        }
    )


def files(*entries: tuple[str, str]) -> pa.Table:
    return pa.table({"partition_path": [path for path, _ in entries], "name": [name for _, name in entries]})


def bounds(
    rows: list[tuple[str, str, Any, Any, int | None]], wrapper: str, of: pa.DataType, to: pa.DataType
) -> ColumnBounds:
    return bounds_of_files(files(*(row[:2] for row in rows)), statistics(rows, wrapper, of), to)[0]


def test_texts_have_no_bounds_if_java_orders_them_differently_or_a_row_group_may_lack_them() -> None:
    rows = [
        ("", "plain", "a", "zebra \u00fc \ud7ff", 0),
        ("", "beyond the basic plane", "\U00010000", "\U00010001", 0),
        ("", "private use", "a", "\ue000", 0),
        ("", "one of both", "\uff5e", "\U00010000", 0),
        ("", "has nulls", "a", "b", 1),
        ("", "a row group without bounds", "a", "b", -1),
    ]
    found = bounds(rows, "StringWrapper", pa.string(), pa.string())
    assert found.minimum.to_pylist() == ["a", None, None, None, None, None]
    assert found.maximum.to_pylist() == ["zebra \u00fc \ud7ff", None, None, None, None, None]
    assert found.null_count.to_pylist() == [0, None, None, None, None, None]


def test_statistics_belong_to_one_partition_and_one_file() -> None:
    rows = [("a", "f", 1, 2, 0), ("b", "f", 3, 4, 1), ("", "g", 5, 6, -1)]
    found, _ = bounds_of_files(
        files(("", "g"), ("b", "f"), ("c", "f"), ("a", "f"), ("a", "g")),
        statistics(rows, "LongWrapper", pa.int64()),
        pa.int64(),
    )
    assert found.minimum.to_pylist() == [None, 3, None, 1, None]
    assert found.maximum.to_pylist() == [None, 4, None, 2, None]
    assert found.null_count.to_pylist() == [None, 1, None, 0, None]


def test_numbers_that_do_not_fit_the_column_have_no_bounds() -> None:
    rows = [("", "f", 1, 1 << 40, 0), ("", "g", 1, 2, 0), ("", "without values", None, None, 0)]
    found = bounds(rows, "LongWrapper", pa.int64(), pa.int32())
    assert found.minimum.to_pylist() == [None, 1, None]
    assert found.maximum.to_pylist() == [None, 2, None]
    assert found.null_count.to_pylist() == [None, 0, None]


def test_timestamps_that_may_be_milliseconds_have_no_bounds() -> None:
    now = 1_764_000_000_000_000
    rows = [("", "since 1960", -315_619_200_000_000, now, 0), ("", "both", now // 1000, now // 1000 + 5, 0)]
    found = bounds(rows, "LongWrapper", pa.int64(), pa.timestamp("us", "UTC"))
    assert found.minimum.cast(pa.int64()).to_pylist() == [-315_619_200_000_000, None]
    assert found.maximum.cast(pa.int64()).to_pylist() == [now, None]


def test_floats_have_no_bounds(tmp_path: Path) -> None:
    table = lakeformat.open(unpack(V9, tmp_path))
    assert bounds_of(table, "amount")[1] is None
    assert bounds_of(table, "qty")[1] is not None
