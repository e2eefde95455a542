"""Step 3: leave out files by what their place and name tell, without opening one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.model.files import BaseFile
from lakeformat.model.keys import KeyGeneratorKind, KeySettings, PartitionField, PartitionKind
from lakeformat.model.record import COMMIT_TIME, FILE_NAME, PARTITION_PATH
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import ColumnBounds, Predicate, may_match
from lakeformat.write.partitions import partition_values

__all__ = ["prune_by_name", "reading_keys"]


def reading_keys(config: TableConfig) -> KeySettings:
    """How partition paths are to be read. Types of custom generators are not stored: those paths tell nothing."""
    fields = config.partition_fields
    kind = KeyGeneratorKind.of_table(config.key_generator, config.record_fields, fields)
    part = PartitionKind.UNKNOWN if kind is KeyGeneratorKind.CUSTOM else PartitionKind.SIMPLE
    return KeySettings(
        kind,
        config.record_fields,
        tuple(PartitionField(name, part) for name in fields),
        hive_style=config.hive_style,
        url_encode=config.url_encode,
    )


def prune_by_name(
    files: Sequence[BaseFile], predicate: Predicate, keys: KeySettings, schema: pa.Schema
) -> npt.NDArray[np.bool_]:
    """Which files may hold a match, judged by partition path, file name and instant."""
    paths = list(dict.fromkeys(file.partition_path for file in files))
    values = {path: partition_values(path, keys, schema) for path in paths}
    bounds = {
        name: _exactly(_column(files, values, name), schema.field(name).type)
        for name in {name for found in values.values() for name in found}
        if name in schema.names
    }
    text = pa.string()
    bounds[PARTITION_PATH] = _exactly([file.partition_path for file in files], text)
    bounds[FILE_NAME] = _exactly([str(file.name) for file in files], text)
    newest = pa.array([file.name.instant_time for file in files], text)
    bounds[COMMIT_TIME] = ColumnBounds(pa.nulls(len(files), text), newest, pa.nulls(len(files), pa.int64()))
    return may_match(predicate, bounds, pa.nulls(len(files), pa.int64()))


def _column(files: Sequence[BaseFile], values: Mapping[str, Mapping[str, pa.Scalar]], name: str) -> list[object]:
    missing = pa.scalar(None)
    return [values[file.partition_path].get(name, missing).as_py() for file in files]


def _exactly(values: Sequence[object], kind: pa.DataType) -> ColumnBounds:
    """Bounds of columns that have one value a file; null where the value is not known."""
    array = pa.array(values, kind)
    nulls = pa.array([None if value is None else 0 for value in values], pa.int64())
    return ColumnBounds(array, array, nulls)
