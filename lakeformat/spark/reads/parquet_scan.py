"""Scans of given files by Spark's own Parquet reader.

Spark's public API finds partition columns only in Hive-style folder names, and asks the file system about every file
first. Therefore this module creates Spark's internal relation through py4j, and passes it the partition columns and the
files' sizes. The internal classes are the same in Spark 4.0 to 4.3. Three ways are tried in turn:

1. `LakehouseFileIndex`: Spark's planner asks lakeformat which files each query must read;
2. Spark's own index of the files (`_relation`), if the JVM takes no file index of ours;
3. Spark's public API, over Spark Connect or in a later Spark without these classes. Then Spark's filters skip only row
   groups, not folders.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from lakeformat.model.files import BaseFile
from lakeformat.read.run.file_statistics import FolderValues
from lakeformat.spark.jobs import context_of
from lakeformat.spark.reads.file_index import FilePruner, IndexedFolder, LakehouseFileIndex
from lakeformat.spark.reads.hadoop_access import HadoopAccess
from lakeformat.spark.reads.jvm import BLOCK_BYTES, SparkJvm, written_ms
from lakeformat.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BOTH_ZEROS", "numbered_scan", "parquet_scan"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Options of Spark's Parquet reader that make it return the rows of the listed files exactly.
_OPTIONS: Final = {
    "recursiveFileLookup": "true",  # No columns are inferred from folder names.
    "mergeSchema": "false",
    "__globPaths__": "false",  # Brackets and stars in folder names are not wildcards.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",  # Overrides the session: a missing file must raise an error.
    "ignoreCorruptFiles": "false",
}
#: Options for files with a float column that may be zero: they switch off the dictionary filter of Parquet's reader. It
#: looks for the value of a condition in a column's dictionary, where -0.0 differs from 0.0. For Spark both are
#: equal, so for ``x >= 0`` the filter would wrongly skip row groups whose only value is -0.0. Row groups are still
#: skipped by their bounds, in which both zeros are equal.
BOTH_ZEROS: Final[Mapping[str, str]] = {"parquet.filter.dictionary.enabled": "false"}


def parquet_scan(
    spark: SparkSession,
    location: str,
    access: HadoopAccess,
    files: Sequence[BaseFile],
    schema: StructType,
    folders: FolderValues,
    more: Mapping[str, str],
    index: tuple[SparkJvm, FilePruner] | None,
) -> DataFrame:
    """Return a DataFrame of the rows of these files, read by Spark's Parquet scan.

    Args:
        location: the table's folder or URL.
        access: how Spark opens the files.
        files: the files to read.
        schema: the columns to read.
        folders: the partition values of the files' folders. Spark does not read these columns from the files.
        more: further options, for Spark's Parquet reader.
        index: chooses the files for each query of the frame; None if Spark's planner cannot ask this process.
    """
    if index is not None:
        try:
            return _indexed_relation(spark, location, access, files, schema, folders, more, *index)
        except Exception as error:  # E.g. a later Spark without these classes.
            _LOG.info("%s: filters skip no files, because Spark takes no file index: %s", location, error)
    if context_of(spark) is not None:
        try:
            return _relation(spark, access.location, files, schema, folders, {**more, **access.options})
        except Exception as error:  # E.g. a later Spark without these classes: use its public API.
            _LOG.info("%s: Spark looks up each file, because its relation cannot take our list: %s", location, error)
    folder = access.location
    folder = f"file://{folder}" if folder.startswith("/") else folder  # All engines know this form, Sail no other.
    paths = [_uri(folder, file.path) for file in files]
    return spark.read.schema(schema).options(**_OPTIONS, **more, **access.options).parquet(*paths)


def _uri(location: str, path: str = "") -> str:
    """Return the URI of a file for Hadoop's ``Path``. The path is not escaped: ``Path`` does not unescape it.

    Args:
        path: the file's path below the table's folder; by default the URI of the folder is returned.
    """
    folder = f"file:{location}" if location.startswith("/") else location
    return f"{folder}/{path}" if path else folder


def _indexed_relation(
    spark: Any,
    location: str,
    access: HadoopAccess,
    files: Sequence[BaseFile],
    schema: StructType,
    folders: FolderValues,
    more: Mapping[str, str],
    jvm: SparkJvm,
    pruner: FilePruner,
) -> DataFrame:
    constants = _constants(schema, folders)
    if constants.names:
        grouped = groupby(sorted(files, key=lambda file: file.partition_path), lambda file: file.partition_path)
        listed = [IndexedFolder(number, tuple(some)) for number, (_, some) in enumerate(grouped)]
        names = [folder.files[0].partition_path for folder in listed]
        values = jvm.sequence(_internal_rows(spark, _folder_values(folders, names, constants.names)))
    else:
        listed, values = [IndexedFolder(0, files)] if files else [], jvm.one(jvm.no_values)
    columns = _jvm_type(spark, constants)
    index = LakehouseFileIndex(jvm, _uri(access.location), listed, columns, values, pruner, _uri(location))
    return _frame(spark, jvm.planner.index_for_spark(index), schema, constants, {**_OPTIONS, **more, **access.options})


def numbered_scan(
    spark: Any,
    location: str,
    access: HadoopAccess,
    files: Sequence[BaseFile],
    schema: StructType,
    column: str,
    jvm: SparkJvm,
    pruner: FilePruner,
) -> DataFrame:
    """Return a DataFrame of the rows of these files, with one more column: the file's position in ``files``.

    Spark reads all columns of ``schema`` from the files. The other arguments are those of `parquet_scan`.

    Args:
        column: name of the column for the position.
        jvm, pruner: choose the files for each query of the frame.
    """
    numbers = pa.table({column: pa.array(range(len(files)), pa.int32())})
    constants, values = spark_schema(numbers.schema), jvm.sequence(_internal_rows(spark, numbers))
    listed = [IndexedFolder(number, (file,)) for number, file in enumerate(files)]
    columns = _jvm_type(spark, constants)
    index = LakehouseFileIndex(jvm, _uri(access.location), listed, columns, values, pruner, _uri(location))
    return _frame(spark, jvm.planner.index_for_spark(index), schema, constants, {**_OPTIONS, **access.options})


def _constants(schema: StructType, folders: FolderValues) -> StructType:
    """Return the columns whose values Spark takes from the files' folders."""
    names = set(folders.values.column_names)
    return StructType([schema[name] for name in schema.names if name in names])


def _jvm_type(spark: Any, columns: StructType) -> Any:
    return spark._jsparkSession.parseDataType(columns.json())


def _frame(spark: Any, index: Any, schema: StructType, constants: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return the frame of the files that Spark finds by ``index``."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    jvm, session = spark._jvm, spark._jsparkSession
    sources = jvm.org.apache.spark.sql.execution.datasources
    relation = sources.HadoopFsRelation(
        index,
        _jvm_type(spark, constants),
        _jvm_type(spark, schema),
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        jvm.PythonUtils.toScalaMap(dict(options)),
        session,
    )
    return ClassicFrame(session.baseRelationToDataFrame(relation), spark)


def _relation(
    spark: Any,
    location: str,
    files: Sequence[BaseFile],
    schema: StructType,
    folders: FolderValues,
    more: Mapping[str, str],
) -> DataFrame:
    jvm, session = spark._jvm, spark._jsparkSession
    sources, python, option = jvm.org.apache.spark.sql.execution.datasources, jvm.PythonUtils, jvm.scala.Option
    path_of, place_of = jvm.org.apache.hadoop.fs.Path, sources.PartitionPath
    constants = _constants(schema, folders)
    value_names = constants.names
    # Spark raises an error if it gets partition values together with the option ``recursiveFileLookup``.
    said = {key: value for key, value in _OPTIONS.items() if not (value_names and key == "recursiveFileLookup")}
    options = {**said, **more}
    columns = option.apply(_jvm_type(spark, schema))
    cache = sources.FileStatusCache.getOrCreate(session)
    paths = _cache_statuses(spark, cache, location, files)
    names = sorted({file.partition_path for file in files}) if value_names else []
    rows = list(_internal_rows(spark, _folder_values(folders, names, value_names))) if value_names else []
    places = [path_of(_uri(location, name)) for name in names]
    spec = sources.PartitionSpec(_jvm_type(spark, constants), python.toSeq(list(map(place_of, rows, places))))
    index = sources.InMemoryFileIndex(
        session, python.toSeq(paths), python.toScalaMap(options), columns, cache, option.apply(spec), option.empty()
    )
    if value_names:
        # Spark looks up a folder's files by the folder's URI. If Spark spells the URI of the files' folder differently,
        # it finds no files, and the folder's rows would be missing. Therefore the URIs are compared.
        keys_found, given_files = index.leafDirToChildrenFiles().keySet(), python.toSeq(places)
        if set(keys_found.mkString("\n").split("\n")) != set(given_files.mkString("\n").split("\n")):
            raise ValueError("Spark writes a folder's name in another way")
    if index.allFiles().size() != len(files):
        raise ValueError("Spark's list lacks some files")
    return _frame(spark, index, schema, constants, options)


def _cache_statuses(spark: Any, cache: Any, location: str, files: Sequence[BaseFile]) -> list[Any]:
    """Store the files' sizes and times in Spark's cache of file statuses, and return the files as Hadoop paths.

    So Spark does not ask the file system about a file, unless the cache has evicted it.
    """
    hadoop, gateway = spark._jvm.org.apache.hadoop.fs, spark.sparkContext._gateway
    path_of, status_of = hadoop.Path, hadoop.FileStatus  # Looked up once: each lookup calls the JVM.
    paths = []
    for file in files:
        path = path_of(_uri(location, file.path))
        statuses = gateway.new_array(status_of, 1)
        statuses[0] = status_of(file.size_bytes, False, 1, BLOCK_BYTES, written_ms(file.name.instant_time), path)
        cache.putLeafFiles(path, statuses)
        paths.append(path)
    return paths


def _folder_values(folders: FolderValues, names: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Return the partition values of folders, one row for each folder.

    Args:
        names: partition paths of the folders.
        columns: names of the partition columns.
    """
    return folders.values.select(columns).take([folders.rows[name] for name in names])


def _internal_rows(spark: Any, values: pa.Table) -> Any:
    """Return rows as an array of Spark's internal rows."""
    frame = spark.createDataFrame(values, spark_schema(values.schema))
    return frame._jdf.queryExecution().executedPlan().executeCollect()
