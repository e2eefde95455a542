"""The metadata tables of Hudi's fixtures give exactly what Hudi itself reads from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeformat.metadata_table.bounds import typed_bounds
from lakeformat.metadata_table.metadata_table import MetadataTable, open_metadata_table
from lakeformat.metadata_table.names import MetadataPartition, bloom_key
from lakeformat.storage import open_storage
from lakeformat.timeline.store import TimelineStore
from tests.helpers.fixture_tables import names, read_expectations, unpack

TABLES = names("hudi_metadata")
TYPES = {
    "qty": pa.int32(),
    "ts": pa.int64(),
    "amount": pa.float64(),
    "price": pa.decimal128(10, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "ok": pa.bool_(),
}


def open_fixture(name: str, into: Path) -> tuple[MetadataTable, dict[str, Any]]:
    table = open_table(unpack(name, into))
    assert table is not None
    return table, read_expectations(name)


def open_table(folder: Path) -> MetadataTable | None:
    store = TimelineStore(open_storage(str(folder)))
    config = store.config()
    return open_metadata_table(store.storage, config, store.load())


def plain(value: Any) -> Any:
    """Return a bound in the form of the facts."""
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def bounds_of(statistics: pa.Table, column: str) -> list[tuple[Any, Any]]:
    data_type = TYPES.get(column, pa.string())
    low, high = typed_bounds(statistics, data_type)
    if pa.types.is_date(data_type):
        low, high = low.view(pa.int32()), high.view(pa.int32())
    if pa.types.is_timestamp(data_type):
        low, high = low.view(pa.int64()), high.view(pa.int64())
    pairs = zip(low.to_pylist(), high.to_pylist(), strict=True)
    return [(plain(one), plain(other)) for one, other in pairs]


def statistics_by(statistics: pa.Table, place: str, *, has_tight: bool) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for column in pc.unique(statistics["column_name"]).to_pylist():
        own = statistics.filter(pc.equal(statistics["column_name"], column))
        for row, (low, high) in zip(own.to_pylist(), bounds_of(own, column), strict=True):
            facts = {"min": low, "max": high, "nulls": row["nulls"], "values": row["values"]}
            facts |= {"tight": row["is_tight"]} if has_tight else {}
            assert column not in found.setdefault(row[place], {})
            found[row[place]][column] = facts
    return found


def shown(partition: str) -> str:
    """Return the name that the facts have for a partition."""
    return partition or "."


@pytest.mark.parametrize("name", TABLES)
def test_partitions_and_files_are_those_that_hudi_lists(name: str, tmp_path: Path) -> None:
    table, facts = open_fixture(name, tmp_path)
    assert [shown(path) for path in table.list_partitions()] == facts["partitions"]
    found: dict[str, dict[str, int]] = {}
    for row in table.files().to_pylist():
        found.setdefault(shown(row["partition_path"]), {})[row["file_name"]] = row["size_bytes"]
    assert found == facts["live_files"]
    for path in table.list_partitions():
        rows = table.files([path, "no such partition"])
        some = dict(zip(rows["file_name"].to_pylist(), rows["size_bytes"].to_pylist(), strict=True))
        assert some == found[shown(path)]


@pytest.mark.parametrize("name", TABLES)
def test_column_statistics_are_those_that_hudi_reads(name: str, tmp_path: Path) -> None:
    table, facts = open_fixture(name, tmp_path)
    found = statistics_by(table.column_stats(), "file_name", has_tight=False)
    if facts["table_version"] == 6:  # Hudi 0.15 was asked for the live files alone.
        found = {file: columns for file, columns in found.items() if file in facts["column_stats"]}
    assert found == facts["column_stats"]
    everything = statistics_by(table.column_stats(), "file_name", has_tight=False)
    for column in ("qty", "price"):
        some = statistics_by(table.column_stats([column]), "file_name", has_tight=False)
        assert some == {file: {column: own[column]} for file, own in everything.items() if column in own}


@pytest.mark.parametrize("name", TABLES)
def test_partition_statistics_are_those_that_hudi_reads(name: str, tmp_path: Path) -> None:
    table, facts = open_fixture(name, tmp_path)
    if not facts.get("partition_stats"):
        assert not table.has(MetadataPartition.PARTITION_STATS)
        return
    statistics = table.partition_stats()
    assert statistics_by(statistics, "partition_path", has_tight=True) == facts["partition_stats"]
    assert len(table.partition_stats(["qty"])) == len(facts["partition_stats"])


@pytest.mark.parametrize("name", TABLES)
def test_places_of_keys_are_those_that_hudi_finds(name: str, tmp_path: Path) -> None:
    table, facts = open_fixture(name, tmp_path)
    expected = {key: tuple(place) for key, place in facts["record_index"].items()}

    def places(found: pa.Table) -> dict[str, tuple[Any, ...]]:
        return {row["key"]: (row["partition_path"], row["file_id"], row["instant_ms"]) for row in found.to_pylist()}

    assert places(table.record_index()) == expected
    wanted = [*list(expected)[::3], "no such key", "", None]
    some = table.record_index(pa.array(wanted, pa.string()))
    assert places(some) == {key: expected[key] for key in wanted if key in expected}
    assert places(table.record_index(pa.array([], pa.string()))) == {}
    for key, place in expected.items():
        assert places(table.record_index(pa.array([key]))) == {key: place}


@pytest.mark.parametrize("name", TABLES)
def test_bloom_filters_are_those_of_the_footers(name: str, tmp_path: Path) -> None:
    table, facts = open_fixture(name, tmp_path)
    files = [
        (path.replace(".", ""), file)
        for path, all_of in facts["live_files"].items()
        for file in all_of
        if file.endswith(".parquet")
    ]
    found = table.bloom_filters([*files, ("", "no.parquet")])
    assert set(found) == set(files)
    for (path, file), text in found.items():
        folder = tmp_path / Path(name).name / path
        assert pq.read_metadata(folder / file).metadata[b"org.apache.hudi.bloomfilter"] == text
    if facts.get("bloom_filters"):
        sizes = {each["key"]: each["bytes"] for each in facts["bloom_filters"]}
        assert {bloom_key(*file): len(text) for file, text in found.items()}.items() <= sizes.items()
