"""Spark reads spliced Parquet files like rewritten ones: with its vectorized reader, and with parquet-mr's records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.helpers.examples import examples
from tests.helpers.spliced_files import spliced_and_rewritten, tables, writer_options

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_CODECS = ("none", "snappy", "gzip", "zstd", "lz4")  # Spark has no brotli.


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[*HealthCheck])
@given(table=tables(), stored=writer_options(_CODECS), fresh=writer_options(_CODECS), data=st.data())
def test_spark_reads_spliced_files_like_rewritten_ones(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    table: pa.Table,
    stored: dict[str, Any],
    fresh: dict[str, Any],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("spliced")
    for name, content in zip(("one", "other"), spliced_and_rewritten(data, table, stored, fresh), strict=True):
        (folder / f"{name}.parquet").write_bytes(content)
    column = f"`{table.schema.names[0]}`"
    session = spark.newSession()
    for vectorized in ("true", "false"):
        session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        session.conf.set("spark.sql.parquet.enableNestedColumnVectorizedReader", vectorized)
        one, other = (session.read.parquet(str(folder / f"{name}.parquet")) for name in ("one", "other"))
        assert one.schema == other.schema
        assert repr(one.collect()) == repr(other.collect())
        assert one.where(f"{column} is null").count() == other.where(f"{column} is null").count()
