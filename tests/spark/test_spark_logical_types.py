"""VECTOR, BLOB and VARIANT of Hudi 1.2 in Spark: their values, and the metadata that names their types."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

import lakeformat
import lakeformat.spark

pytestmark = pytest.mark.spark

_REFERENCE = "struct<external_path string, offset bigint, length bigint, managed boolean>"
_BLOB = f"struct<type string, data binary, reference {_REFERENCE}>"
_ROWS = [
    (1, [1.5, -2.0, 0.1], ("INLINE", bytearray(b"\x01"), None)),
    (2, None, ("OUT_OF_LINE", None, ("/f", None, 3, True))),
    (3, [0.0, 0.0, 9.0], None),
]


def _frame(spark: SparkSession) -> DataFrame:
    schema = StructType.fromDDL(f"id int, v array<float>, b {_BLOB}")
    schema["v"].metadata, schema["b"].metadata = {"hudi_type": "VECTOR(3)"}, {"hudi_type": "BLOB"}
    return spark.createDataFrame(_ROWS, schema)


def _save(rows: DataFrame, path: Path, **options: str) -> None:
    rows.write.format("lakehouse").options(recordkey="id", **options).mode("append").save(str(path))


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_vectors_and_blobs_come_back_with_their_types(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    _save(_frame(spark), path, **{"hoodie.datasource.write.table.type": kind})
    loaded = spark.read.format("lakehouse").load(str(path))
    again = loaded.where("id < 3")
    _save(again.select("id", "v", "b"), path)
    loaded = spark.read.format("lakehouse").load(str(path))
    named = {field.name: field.metadata.get("hudi_type") for field in loaded.schema}
    assert (named["v"], named["b"]) == ("VECTOR(3)", "BLOB")
    expected = [(row[0], row[1] and [pytest.approx(value) for value in row[1]]) for row in _ROWS]
    for rows in (loaded, lakeformat.spark.read(spark, path)):
        assert [tuple(row) for row in rows.select("id", "v").orderBy("id").collect()] == expected
        blobs = [row.b and (row.b.type, row.b.data, row.b.reference) for row in rows.orderBy("id").collect()]
        assert blobs == [_ROWS[0][2], ("OUT_OF_LINE", None, Row("/f", None, 3, True)), None]
    stored = lakeformat.open(path).schema
    assert stored.field("v").metadata == {b"hudi_type": b"VECTOR(3)"}


def test_variants_are_saved_and_loaded(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = spark.sql("select id, parse_json(v) v from values (1, '{\"a\": 7}'), (2, '[1, 2]'), (3, null) t(id, v)")
    _save(rows, path)
    _save(rows.where("id = 2"), path)
    loaded = spark.read.format("lakehouse").load(str(path))
    assert loaded.schema["v"].dataType.simpleString() == "variant"
    chosen = loaded.orderBy("id").selectExpr("variant_get(v, '$.a', 'int') a", "to_json(v) j").collect()
    assert [tuple(row) for row in chosen] == [(7, '{"a":7}'), (None, "[1,2]"), (None, None)]
    assert [row.v and row.v.toPython() for row in lakeformat.spark.read(spark, path).orderBy("id").collect()] == [
        {"a": 7},
        [1, 2],
        None,
    ]
    plain = lakeformat.open(path).to_arrow()
    assert plain.schema.field("v").metadata == {b"hudi_type": b"VARIANT"}
    assert set(plain["v"][0].as_py()) == {"metadata", "value"}
