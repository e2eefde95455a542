"""Spark's Parquet relation over given files, whose folders' values Spark knows: what makes its own filters prune.

Spark's public calls find partition columns in folder names alone, and only of Hive's style; they look every file up
first, too. The relation behind them takes both as given. It is made of Spark's internal classes, the same in 4.0 to
4.3, by way of py4j; where they are out of reach (Spark Connect, a later Spark) the public call is taken, and filters
prune row groups only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from lakeformat.model.files import BaseFile
from lakeformat.read.told import FolderValues
from lakeformat.spark.jobs import context_of
from lakeformat.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BOTH_ZEROS", "parquet_scan"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_OPTIONS: Final = {
    "recursiveFileLookup": "true",  # No columns from folder names.
    "mergeSchema": "false",
    "__globPaths__": "false",  # Brackets and stars in folder names are themselves.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",  # Whatever the session says: rows are never left out in silence.
    "ignoreCorruptFiles": "false",
}
#: For files with a float column that may be zero. Parquet's reader looks the value of a condition up in a column's
#: dictionary, which tells -0.0 from 0.0, and Spark does not: row groups of -0.0 alone would be lost to ``x >= 0``.
#: Row groups are skipped by their bounds all the same; there both zeros count as one.
BOTH_ZEROS: Final[Mapping[str, str]] = {"parquet.filter.dictionary.enabled": "false"}
_BLOCK_BYTES: Final = 128 << 20


def parquet_scan(
    spark: SparkSession,
    location: str,
    files: Sequence[BaseFile],
    schema: StructType,
    folders: FolderValues,
    more: Mapping[str, str],
) -> DataFrame:
    """The files' rows.

    Args:
        location: the table's folder or URL.
        schema: the columns to read.
        folders: values of the folder of each file. Columns that it has are not read.
        more: options of Spark's reader and of Parquet's, besides those that every scan has.
    """
    if context_of(spark) is not None:
        try:
            return _relation(spark, location, files, schema, folders, more)
        except Exception as error:  # Whatever a later Spark has made of its classes.
            _LOG.info("Spark's relation cannot be made of files as they are known, it looks them up: %s", error)
    paths = [_uri(location, file.path) for file in files]
    return spark.read.schema(schema).options(**_OPTIONS, **more).parquet(*paths)


def _uri(location: str, path: str) -> str:
    """For Hadoop's ``Path``, which takes everything behind the scheme as it stands."""
    return f"file:{location}/{path}" if location.startswith("/") else f"{location}/{path}"


def _relation(
    spark: Any,
    location: str,
    files: Sequence[BaseFile],
    schema: StructType,
    folders: FolderValues,
    more: Mapping[str, str],
) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    jvm, session = spark._jvm, spark._jsparkSession
    sources, python, option = jvm.org.apache.spark.sql.execution.datasources, jvm.PythonUtils, jvm.scala.Option
    path_of, place_of = jvm.org.apache.hadoop.fs.Path, sources.PartitionPath
    of_folders = set(folders.values.column_names)
    known = [name for name in schema.names if name in of_folders]
    # Which Spark refuses beside columns of folders, and which keeps it from looking for them.
    said = {key: value for key, value in _OPTIONS.items() if not (known and key == "recursiveFileLookup")}
    options = python.toScalaMap({**said, **more})
    partitions = StructType([schema[name] for name in known])
    columns, constants = (session.parseDataType(of.json()) for of in (schema, partitions))
    cache = sources.FileStatusCache.getOrCreate(session)
    paths = _remembered(spark, cache, location, files)
    names = sorted({file.partition_path for file in files}) if known else []
    rows = _internal_rows(spark, folders, names, known)
    places = [path_of(_uri(location, name)) for name in names]
    spec = sources.PartitionSpec(constants, python.toSeq(list(map(place_of, rows, places))))
    index = sources.InMemoryFileIndex(
        session, python.toSeq(paths), options, option.apply(columns), cache, option.apply(spec), option.empty()
    )
    if known:
        # Spark drops a file whose folder has another name to it: no row may be lost by that.
        found, told = index.leafDirToChildrenFiles().keySet(), python.toSeq(places)
        if set(found.mkString("\n").split("\n")) != set(told.mkString("\n").split("\n")):
            raise ValueError("it names folders otherwise")
    if index.allFiles().size() != len(files):
        raise ValueError("it does not have all files")
    format_ = sources.parquet.ParquetFileFormat()
    relation = sources.HadoopFsRelation(index, constants, columns, option.empty(), format_, options, session)
    return ClassicFrame(session.baseRelationToDataFrame(relation), spark)


def _remembered(spark: Any, cache: Any, location: str, files: Sequence[BaseFile]) -> list[Any]:
    """Paths of the files, which the cache now knows: Spark looks up those alone that it has forgotten."""
    hadoop, gateway = spark._jvm.org.apache.hadoop.fs, spark.sparkContext._gateway
    path_of, status_of = hadoop.Path, hadoop.FileStatus  # Each name looked up is a call.
    paths = []
    for file in files:
        path = path_of(_uri(location, file.path))
        statuses = gateway.new_array(status_of, 1)
        statuses[0] = status_of(file.size_bytes, False, 1, _BLOCK_BYTES, _written_ms(file), path)
        cache.putLeafFiles(path, statuses)
        paths.append(path)
    return paths


def _written_ms(file: BaseFile) -> int:
    """For those who ask Spark for a file's time: that of the commit that wrote it, to a second."""
    return int(datetime.strptime(file.name.instant_time[:14], "%Y%m%d%H%M%S").timestamp()) * 1000


def _internal_rows(spark: Any, folders: FolderValues, names: Sequence[str], columns: Sequence[str]) -> Sequence[Any]:
    """The folders' values as Spark's own rows."""
    if not columns:
        return []
    values = folders.values.select(columns).take([folders.rows[name] for name in names])
    frame = spark.createDataFrame(values, spark_schema(values.schema))
    return list(frame._jdf.queryExecution().executedPlan().executeCollect())
