"""Partition values, types and changes of a registration, as tables of examples."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakeformat import InvalidInputError
from lakeformat.catalog.entry import CatalogColumn, CatalogEntry, CatalogPartition
from lakeformat.catalog.partition_values import extract_values
from lakeformat.catalog.plan import Change, Partitioning, plan_partitions, plan_table, touched_partitions
from lakeformat.catalog.types import hive_type, spark_schema_json
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.extractors import choose_extractor

ENTRY = CatalogEntry(
    database="d", name="t", columns=(CatalogColumn("id", "int"), CatalogColumn("v", "struct<a:int>")),
    partition_keys=(CatalogColumn("p", "string"),), location="/t", input_format="in", output_format="out",
    serde="s", properties={"k": "1"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("extractor", "path", "values"),
    [
        ("NonPartitionedExtractor", "", ()),
        ("SinglePartPartitionValueExtractor", "2025/11/20", ("2025-11-20",)),
        ("MultiPartKeysValueExtractor", "a/b", ("a", "b")),
        ("MultiPartKeysValueExtractor", "x=a/y=b", ("a", "b")),
        ("MultiPartKeysValueExtractor", "", ()),
        ("HiveStylePartitionValueExtractor", "x=a", ("a",)),
        ("SlashEncodedDayPartitionValueExtractor", "2025/1/2", ("2025-01-02",)),
        ("SlashEncodedDayPartitionValueExtractor", "y=2025/m=01/d=02", ("2025-01-02",)),
        ("SlashEncodedHourPartitionValueExtractor", "2025/01/02/3", ("2025-01-02-03",)),
    ],
)
def test_values_are_those_of_hudis_extractors(extractor: str, path: str, values: tuple[str, ...]) -> None:
    assert extract_values(extractor, path, ("x", "y")[: len(values)]) == values


@pytest.mark.parametrize(
    ("extractor", "path", "fields", "problem"),
    [
        ("HiveStylePartitionValueExtractor", "a", ("x",), "does not have the form"),
        ("SlashEncodedDayPartitionValueExtractor", "2025-01-02", ("x",), "does not have the form"),
        ("SlashEncodedDayPartitionValueExtractor", "2025/13/02", ("x",), "does not have the form"),
        ("SlashEncodedHourPartitionValueExtractor", "2025/01/02/24", ("x",), "does not have the form"),
        ("MultiPartKeysValueExtractor", "a/b/c", ("x", "y"), "has 3 values .* fields x, y"),
    ],
)
def test_path_that_does_not_fit_is_refused(extractor: str, path: str, fields: tuple[str, ...], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        extract_values(extractor, path, fields)


def test_extractor_follows_from_the_partition_fields() -> None:
    assert choose_extractor(0, hive_style=True) == "NonPartitionedExtractor"
    assert choose_extractor(1, hive_style=True) == "HiveStylePartitionValueExtractor"
    assert choose_extractor(1, hive_style=False, slash_dates=True) == "SlashEncodedDayPartitionValueExtractor"
    assert choose_extractor(1, hive_style=False) == "SinglePartPartitionValueExtractor"
    assert choose_extractor(2, hive_style=True) == "MultiPartKeysValueExtractor"


NESTED = pa.struct([("A", pa.int32()), ("b-c$d", pa.list_(pa.float64()))])


@pytest.mark.parametrize(
    ("type_", "hive"),
    [
        (pa.bool_(), "boolean"), (pa.int32(), "int"), (pa.int64(), "bigint"), (pa.float32(), "float"),
        (pa.float64(), "double"), (pa.string(), "string"), (pa.binary(), "binary"), (pa.binary(4), "binary"),
        (pa.date32(), "date"), (pa.decimal128(10, 2), "decimal(10,2)"), (pa.time32("ms"), "int"),
        (pa.time64("us"), "bigint"), (pa.timestamp("us"), "bigint"),
        (NESTED, "struct<a:int,b_c_dollar_d:array<double>>"),
        (pa.map_(pa.string(), NESTED), "map<string,struct<a:int,b_c_dollar_d:array<double>>>"),
    ],
)  # fmt: skip
def test_types_are_those_of_hudi(type_: pa.DataType, hive: str) -> None:
    assert hive_type(type_, has_timestamps=False) == hive


def test_timestamps_have_their_own_type_on_request() -> None:
    assert hive_type(pa.list_(pa.timestamp("us", "UTC")), has_timestamps=True) == "array<timestamp>"
    text = spark_schema_json(
        [pa.field("t", pa.timestamp("us", "UTC"), nullable=False), pa.field("n", pa.timestamp("us"))]
    )
    assert '{"name":"t","type":"timestamp","nullable":false,"metadata":{}}' in text
    assert '"type":"timestamp_ntz"' in text


@pytest.mark.parametrize(
    ("found", "change", "columns"),
    [
        (None, Change.CREATE, ("id", "v")),
        (ENTRY, Change.NONE, ()),
        (replace(ENTRY, location="file:/t", properties={"k": "1", "other": "2"}), Change.NONE, ()),
        (replace(ENTRY, location="/elsewhere", input_format="HoodieInputFormat"), Change.RECREATE, ()),
        (replace(ENTRY, properties={"k": "2"}), Change.ALTER, ()),
        (replace(ENTRY, input_format="other"), Change.ALTER, ()),
        (replace(ENTRY, columns=ENTRY.columns[:1]), Change.ALTER, ("v",)),
        (replace(ENTRY, columns=(*ENTRY.columns, CatalogColumn("gone", "int"))), Change.ALTER, ("gone",)),
        (replace(ENTRY, columns=(CatalogColumn("ID", "bigint"), ENTRY.columns[1])), Change.ALTER, ("id",)),
    ],
)
def test_change_of_a_table(found: CatalogEntry | None, change: Change, columns: tuple[str, ...]) -> None:
    planned = plan_table(ENTRY, found, recreates=False)
    assert (planned.change, planned.columns) == (change, columns)
    assert planned.retyped == (columns == ("id",))


def test_table_of_another_format_at_another_path_is_not_replaced() -> None:
    found = replace(ENTRY, location="/elsewhere")
    with pytest.raises(InvalidInputError, match="another one, at /elsewhere, and is not of Hudi"):
        plan_table(ENTRY, found, recreates=False)
    assert plan_table(ENTRY, found, recreates=True).change is Change.RECREATE


def _commit(operation: str, written: tuple[str, ...] = (), replaced: tuple[str, ...] = ()) -> CommitMetadata:
    stats = {path: (WriteStat(path, "f", f"{path}/f.parquet", None, 1),) for path in written}
    return CommitMetadata(operation, stats, replaced=dict.fromkeys(replaced, ("g",)))


@pytest.mark.parametrize(
    ("commits", "touched", "dropped"),
    [
        ([_commit("UPSERT", ("a", "b"))], ("a", "b"), set()),
        ([_commit("DELETE_PARTITION", replaced=("a",))], ("a",), {"a"}),
        ([_commit("DELETE_PARTITION", replaced=("a",)), _commit("UPSERT", ("a",))], ("a",), set()),
        ([_commit("UPSERT", ("a",)), _commit("DELETE_PARTITION", replaced=("a",))], ("a",), {"a"}),
        ([_commit("INSERT_OVERWRITE_TABLE", ("a",), ("a", "b"))], ("a", "b"), {"b"}),
        ([_commit("CLUSTER", ("a",), ("a",))], ("a",), set()),
    ],
)
def test_partitions_that_commits_touch_and_drop(
    commits: list[CommitMetadata], touched: tuple[str, ...], dropped: set[str]
) -> None:
    assert touched_partitions(commits) == (touched, dropped)


def test_changes_of_partitions() -> None:
    partitioning = Partitioning(("p",), "SinglePartPartitionValueExtractor", "/t")
    here = [CatalogPartition((name,), f"file:/t/{name}") for name in "abc"]
    found = [*here, CatalogPartition(("moved",), "/elsewhere")]
    planned = plan_partitions(
        ["a", "b", "moved", "new", "gone"], {"b", "gone"}, found, partitioning, is_complete=False, touches=True
    )
    assert [each.values for each in planned.added] == [("new",)]
    assert [each.values for each in planned.changed] == [("moved",)]
    assert [each.values for each in planned.touched] == [("a",)]
    assert [each.values for each in planned.dropped] == [("b",)]
    planned = plan_partitions(["a"], (), found, partitioning, is_complete=True, touches=True)
    assert {each.values for each in planned.dropped} == {("b",), ("c",), ("moved",)}
    assert planned.touched == ()
