"""The partition values in folder names, and proofs that the rows of a file have them.

Nearly always the rows of a folder have the partition values in its name. The exception is a global index that does not
move rows (``…update.partition.path=false``). With it, an updated row stays in its folder even if the update stores
another partition value. lakeformat does so, and so does Apache Hudi (0.15.0 to 1.2.0; its Spark reader then shows the
folder's value, hudi-rs the stored one). No table property shows whether this happened.

Three sources prove that the rows of a file have the partition values of its folder. They are used in this order:

1. the bounds of the partition columns in the file index;
2. a commit of lakeformat, because it lists those of its files that may have other values;
3. a commit of Hudi that only inserted into a new file, because an inserted row goes to the folder of its own value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.json_text import parse_json
from lakeformat.errors import InvalidOptionError, UnsupportedTableError
from lakeformat.keys.partition_paths import DEFAULT_PARTITION, partition_values
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BOOTSTRAP_TIME, LogFileName
from lakeformat.model.keys import KeyGeneratorKind, KeySettings, PartitionField, PartitionKind
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import ColumnBounds, column_path

__all__ = [
    "OFF_FOLDER",
    "constants_time",
    "dropped_column_values",
    "find_folder_proven_files",
    "find_folder_proven_logs",
    "find_misplaced_rows",
    "partition_column_values",
    "reading_key_settings",
    "stored_columns",
    "virtual_key_settings",
]

#: Key of ``extraMetadata``. Its value is a JSON list of the commit's files that may hold rows whose partition values
#: differ from their folder's.
OFF_FOLDER: Final = "lakeformat.files.off.folder"
#: Hudi's operations that store a new row in the folder of its own partition values.
_INSERTING: Final = frozenset({"INSERT", "UPSERT", "BULK_INSERT", "INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"})

_DELETING: Final = frozenset({"DELETE"})

Flags = npt.NDArray[np.bool_]


def reading_key_settings(config: TableConfig) -> KeySettings:
    """Return the key settings for parsing partition paths into values.

    The paths give no values in two cases: the key generator is Hudi's custom one, whose field types the table does not
    store, or it is not one of Hudi's.
    """
    fields = config.partition_fields
    try:
        kind = KeyGeneratorKind.of_table(config.key_generator, config.record_fields, fields)
    except InvalidOptionError:
        kind = KeyGeneratorKind.CUSTOM
    part = PartitionKind.UNKNOWN if kind is KeyGeneratorKind.CUSTOM else PartitionKind.SIMPLE
    return KeySettings(
        kind,
        config.record_fields,
        tuple(PartitionField(name, part) for name in fields),
        hive_style=config.hive_style,
        url_encode=config.url_encode,
    )


def partition_column_values(paths: Sequence[str], keys: KeySettings, schema: pa.Schema) -> Mapping[str, pa.Array]:
    """Parse partition paths. Return a mapping of partition column to an array with its value for each path.

    The value is null if a path does not give it.

    Args:
        schema: the stored columns, which give the types.
    """
    values_by_path = [partition_values(path, keys, schema) for path in paths]
    names = {name for values in values_by_path for name in values} & {*schema.names}
    missing = pa.scalar(None)
    return {
        column_path([name]): pa.array([v.get(name, missing).as_py() for v in values_by_path], schema.field(name).type)
        for name in names
    }


def dropped_column_values(path: str, config: TableConfig, schema: pa.Schema) -> Mapping[str, pa.Scalar]:
    """Parse the values of the partition columns from a folder's path, for a table whose files do not hold them.

    If the path does not give the value of a text column (for example, a path made from a time), the value is the path's
    text.

    Raises:
        UnsupportedTableError: the path does not give the value of a column that is not text; the message names the
            column.
    """
    keys = reading_key_settings(config)
    is_measured = partition_values(path, keys, schema)
    segments, names = path.split("/"), set(schema.names)
    values: dict[str, pa.Scalar] = {}
    for number, name in enumerate(config.partition_fields):
        if name not in names:
            continue
        of = schema.field(name).type
        alone = len(config.partition_fields) == 1
        text = path if alone else segments[number] if len(segments) == len(config.partition_fields) else None
        bare = None if text is None else text.removeprefix(f"{name}=") if keys.hive_style else text
        if name in is_measured:
            values[name] = is_measured[name].cast(of)
        elif bare == DEFAULT_PARTITION:
            values[name] = pa.scalar(None, of)
        elif bare is not None and kind_of(of) is Kind.TEXT:
            values[name] = pa.scalar(bare, of)
        else:
            raise UnsupportedTableError(
                f"files of the table do not hold the partition column {name!r}, and the folder {path!r} does not give "
                f"its value as {of}; read the table with Apache Hudi"
            )
    return values


def constants_time(config: TableConfig) -> str:
    """Return the instant of the files whose partition columns have the values of folders; "" for all files."""
    return "" if config.drops_partition_columns else BOOTSTRAP_TIME


def stored_columns(schema: pa.Schema, config: TableConfig) -> pa.Schema:
    """Return the columns of a table that all its files hold, so that their statistics can be used."""
    return pa.schema([field for field in schema if field.name not in config.folder_columns])


def virtual_key_settings(config: TableConfig) -> KeySettings:
    """Return the key settings for computing the record keys of a table that does not store them (virtual keys).

    Raises:
        UnsupportedTableError: the class of the key generator is not known. Read-optimized queries need no keys.
    """
    try:
        kind = KeyGeneratorKind.of_table(config.key_generator, config.record_fields, config.partition_fields)
    except InvalidOptionError as error:
        raise UnsupportedTableError(
            f"the table stores no record keys (hoodie.populate.meta.fields=false), and they cannot be made: {error}"
        ) from None
    complex_keys = kind is KeyGeneratorKind.COMPLEX
    return KeySettings(
        KeyGeneratorKind.COMPLEX if complex_keys else KeyGeneratorKind.CUSTOM,
        config.record_fields,
        logical_times=config.logical_times,
    )


def find_misplaced_rows(values: Mapping[str, pa.Array], bounds: Mapping[str, ColumnBounds]) -> tuple[Flags, Flags]:
    """Compare the partition values of the folders with the bounds of the files. Return two flags per file.

    The first flag tells whether a row of the file may have another value than the folder. The second flag tells whether
    the bounds that decide this are known. If the bounds are not known, the first flag is true. If a folder's name gives
    no value of a column, the column is not compared.

    Args:
        values: result of `partition_column_values`, with an entry per file.
        bounds: known bounds of the same columns.
    """
    count = len(next(iter(values.values()), ()))
    off, is_known = np.zeros(count, np.bool_), np.ones(count, np.bool_)
    for name, of_folder in values.items():
        has_no_value = np.asarray(pc.is_null(of_folder))
        is_own, is_measured = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        column = bounds.get(name)
        if column is not None and column.minimum.type == of_folder.type:
            is_measured = np.asarray(pc.and_(pc.is_valid(column.minimum), pc.is_valid(column.null_count)))
            same = pc.and_(pc.equal(column.minimum, of_folder), pc.equal(column.maximum, of_folder))
            is_own = np.asarray(pc.fill_null(pc.and_(same, pc.equal(column.null_count, 0)), False))
        off |= ~has_no_value & ~is_own
        is_known &= has_no_value | is_measured
    return off, is_known


def find_folder_proven_files(metadata: CommitMetadata) -> frozenset[str]:
    """Return the paths of the commit's files whose rows are proven to have the partition values of their folder."""
    listed_paths = metadata.extra.get(OFF_FOLDER)
    if listed_paths is not None:
        try:
            return frozenset(stat.path for stat in metadata.all_stats()).difference(parse_json(listed_paths))
        except (ValueError, TypeError):  # Lakeformat did not write this value, so it proves nothing.
            return frozenset()
    if metadata.operation not in _INSERTING:
        return frozenset()
    return frozenset(s.path for s in metadata.all_stats() if s.prev_commit is None and not s.num_updates)


def find_folder_proven_logs(metadata: CommitMetadata) -> Mapping[str, int | None]:
    """Find the log files of a commit whose rows are proven to have the partition values of their folder.

    Return a mapping of the path of each log file of the commit to its size in bytes if this is proven, else to None.
    It is proven if the commit's operation inserts or deletes, and the log file has no updates: an inserted row goes to
    the folder of its own partition value, and a delete stores no row.
    """
    logs = (stat for stat in metadata.all_stats() if LogFileName.match(stat.path.rpartition("/")[2]))
    inserts = metadata.operation in _INSERTING or metadata.operation in _DELETING
    return {stat.path: stat.size_bytes if inserts and not stat.num_updates else None for stat in logs}
