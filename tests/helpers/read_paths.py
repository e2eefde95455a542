"""Every read path of Spark. The oracle is the rows that Spark selects from plain Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, functions

import lakeformat
from lakeformat.spark import LakehouseTable, read
from tests.helpers.zoned_conditions import rows

#: Name -> settings of a user's session.
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "nothing": {},
    "another zone": {"spark.sql.session.timeZone": "Pacific/Apia"},
    "no ANSI": {"spark.sql.ansi.enabled": "false"},
    "case sensitive": {"spark.sql.caseSensitive": "true"},
    "no adaptive execution": {"spark.sql.adaptive.enabled": "false"},
    "pushdown": {"spark.sql.python.filterPushdown.enabled": "true"},
    "rows filtered by Parquet": {
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.sql.parquet.recordLevelFilter.enabled": "true",
    },
    "all of them": {
        "spark.sql.session.timeZone": "America/St_Johns",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
    },
}
CONDITIONS: Final = (
    "at >= '2024-03-10' and n < 5", "day < timestamp '2024-03-31 03:00:00Z'",
    "not (at between '2024-03-10' and date '2024-03-11')",
    "at in ('2024-01-01 00:00:00', '2018-02-18 02:00:00') or s.at > '2011-12-30'",
    "made >= '2024-03-10' and made < '2024-11-03'", "day = '2024-03-10' or made < timestamp '1970-01-01 00:00:00'",
    "wall >= '2024-03-10 02:30:00'", "x = 0", "not (x <= 1)", "text like '2024%'",
)  # fmt: skip
#: Setting -> the table that is read under it; each setting costs fifty scans.
TABLE_OF: Final[Mapping[str, str]] = {
    "nothing": "days",
    "another zone": "moments",
    "no ANSI": "logs",
    "case sensitive": "days",
    "no adaptive execution": "logs",
    "pushdown": "moments",
    "rows filtered by Parquet": "days",
    "all of them": "moments",
}

Found: TypeAlias = dict[str, list[int]]
Way: TypeAlias = Callable[[SparkSession, str], Callable[[str], DataFrame]]


def make_tables(folder: Path) -> None:
    """Write one set of rows in folders of days, in folders of moments, in base and log files, and as plain Parquet."""
    table = rows()
    table = table.append_column("made", table["at"].fill_null(table["at"][0]))
    pq.write_table(table, folder / "plain.parquet")
    styles: dict[str, dict[str, Any]] = {
        "days": {"partition_by": "day", "hoodie.datasource.write.hive_style_partitioning": True},
        "moments": {"partition_by": "made"},
        "logs": {"table_type": "MERGE_ON_READ"},
    }
    for name, options in styles.items():
        made = lakeformat.create(folder / name, table.schema, record_key="id", **options)
        stale = table.set_column(table.schema.get_field_index("n"), "n", pa.array([99] * len(table), pa.int32()))
        made.bulk_insert(pa.concat_tables([table.slice(0, 80), stale.slice(80)]))
        made.upsert(table.slice(80))


def spark_answers(spark: SparkSession, folder: Path, texts: Sequence[str] = CONDITIONS) -> Found:
    """Return what Spark selects from the plain rows. Conditions are columns here, so no filter reaches Parquet."""
    answers = [functions.expr(text).alias(f"_{at}") for at, text in enumerate(texts)]
    answered = spark.read.parquet(str(folder / "plain.parquet")).select("id", *answers).collect()
    return {text: sorted(row["id"] for row in answered if row[f"_{at}"]) for at, text in enumerate(texts)}


def read_answers(select: Callable[[str], DataFrame], texts: Sequence[str] = CONDITIONS) -> Found:
    """Return what one read path selects, in one job for all conditions."""
    frames = [select(text).select(functions.lit(at).alias("at"), "id") for at, text in enumerate(texts)]
    answered = reduce(DataFrame.union, frames).collect()
    return {text: sorted(row["id"] for row in answered if row["at"] == at) for at, text in enumerate(texts)}


def _view(spark: SparkSession, frame: DataFrame) -> Callable[[str], DataFrame]:
    frame.createOrReplaceTempView("ways_in")
    return lambda text: spark.sql(f"select * from ways_in where {text}")  # noqa: S608  Texts of this module.


def _view_of_source(spark: SparkSession, path: str) -> Callable[[str], DataFrame]:
    spark.sql(f"create or replace temporary view ways_in using lakehouse options (path '{path}')")
    return lambda text: spark.sql(f"select * from ways_in where {text}")  # noqa: S608


def _on(frame: DataFrame) -> Callable[[str], DataFrame]:
    return frame.where


WAYS: Final[Mapping[str, Way]] = {
    "read(where)": lambda spark, path: lambda text: read(spark, path, where=text),
    "read(where column)": lambda spark, path: lambda text: read(spark, path, where=functions.expr(text)),
    "read(where, source)": lambda spark, path: lambda text: read(spark, path, where=text, via="source"),
    "read": lambda spark, path: _on(read(spark, path)),
    "read(source)": lambda spark, path: _on(read(spark, path, via="source")),
    "table": lambda spark, path: _on(LakehouseTable.forPath(spark, path).read(meta_columns=True, via="native")),
    "load": lambda spark, path: _on(spark.read.format("lakehouse").load(path)),
    "load(where)": lambda spark, path: lambda text: (
        spark.read.format("lakehouse").option("where", text).load(path)
    ),
    "view of read": lambda spark, path: _view(spark, read(spark, path)),
    "view of load": _view_of_source,
}  # fmt: skip


def stream_answers(spark: SparkSession, path: str, folder: Path, text: str, *, by_option: bool) -> list[int]:
    """Return what a stream of the whole table selects."""
    stream = spark.readStream.format("lakehouse")
    frame = stream.option("where", text).load(path) if by_option else stream.load(path).where(text)
    writer = frame.select("id").writeStream.format("memory").queryName("ways_in_stream").trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder)).start().awaitTermination()
    return sorted(row["id"] for row in spark.table("ways_in_stream").collect())


def find_differences(spark: SparkSession, folder: Path, setting: str, table: str | None = None) -> dict[str, list[int]]:
    """Return the read paths whose rows differ from those that Spark selects from plain Parquet."""
    texts = CONDITIONS[list(SETTINGS).index(setting) % 2 :: 2]
    table = table or TABLE_OF[setting]
    wanted, differences = spark_answers(spark, folder, texts), dict[str, list[int]]()
    assert len({str(ids) for ids in wanted.values()}) == len(texts)
    for name, way in WAYS.items():
        got = read_answers(way(spark, str(folder / table)), texts)
        for text in (text for text in texts if got[text] != wanted[text]):
            differences[f"{table}, {name}: {text}"] = sorted(set(got[text]) ^ set(wanted[text]))
    return differences
