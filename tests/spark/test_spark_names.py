"""`LakehouseTable` refuses unknown names with the messages of `Table`, and dedupes and fills as `Table` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakeformat
import lakeformat.spark
from lakeformat import InstantNotAvailableError, InvalidInputError, InvalidOptionError
from lakeformat.spark.table import LakehouseTable
from tests.helpers.lakehouse import flights

pytestmark = pytest.mark.spark

ROWS = [(1, "a", 1, 0.5), (2, "b", 1, 1.5)]
KEYS = {"recordkey": "id", "partitionpath": "part"}
#: The call, the error class and a part of the message.
REFUSED: dict[str, tuple[Callable[[LakehouseTable, Any], Any], type[Exception], str]] = {
    "options": (lambda t, rows: t.insert(rows, options={}), InvalidOptionError, "LakehouseTable.forPath"),
    "predicate": (lambda t, rows: t.merge(rows, predicate="s.id = t.id"), InvalidOptionError, "record key"),
    "misspelt": (lambda t, rows: t.upsert(rows, partial_udpate=True), InvalidOptionError, "'partial_update'"),
    "where": (lambda t, _: t.delete(predicate="id = 1"), InvalidOptionError, "'where'"),
    "restore": (lambda t, _: t.restore(7), InstantNotAvailableError, "has no version 7"),
    "clause": (lambda t, rows: t.merge(rows).whenMatchedUpdateAll, AttributeError, "when_matched_update"),
    "vacuum": (lambda t, _: t.vacuum, AttributeError, "clean"),
    "insert": (
        lambda t, rows: t.create(rows.sparkSession, t.location, rows, insert=True, **KEYS),
        InvalidInputError,
        "commits",
    ),
}


def test_a_table_is_filled_refuses_and_dedupes(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = flights(spark, ROWS)
    LakehouseTable.create(spark, str(tmp_path / "empty"), rows, **KEYS)
    assert ["insert=True" in each.getMessage() for each in caplog.records if each.name == "lakeformat.write"] == [True]
    table = LakehouseTable.create(spark, str(tmp_path / "t"), rows, insert=True, **KEYS)
    assert (table.count(), table.location) == (2, str(tmp_path / "t"))
    for case, (call, error, said) in REFUSED.items():
        with pytest.raises(error, match=said) as caught:
            call(table, rows)
        assert "\n" not in str(caught.value), case
    table.insert(rows)
    assert (table.dedupe(dry_run=True).rows, table.count()) == (2, 4)
    assert (table.dedupe().keys, table.count()) == (2, 2)
    assert repr(table.history()).startswith("History(3 entries, newest dedupe ")
    assert table.history(actions=True)[0].operation == "dedupe"


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_column_with_the_name_of_sparks_row_numbers_keeps_its_values(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    name = "_tmp_metadata_row_index"
    table = lakeformat.create(tmp_path, {"id": "int64", name: "int64"}, record_key="id", table_type=kind)
    table.insert([{"id": at, name: 100 + at} for at in range(5)])
    table.upsert([{"id": 1, name: 200}])
    frame = lakeformat.spark.read(spark, str(tmp_path))
    assert sorted((row.id, row[name]) for row in frame.where("id < 3").collect()) == [(0, 100), (1, 200), (2, 102)]
    with pytest.raises(InvalidInputError, match="would put row numbers"):
        lakeformat.spark.read(spark, str(tmp_path), via="native")
