"""Step 3: leave out files by what their place and name tell, without opening one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import InvalidOptionError
from lakeformat.model.keys import KeyGeneratorKind, KeySettings, PartitionField, PartitionKind
from lakeformat.model.record import COMMIT_TIME, FILE_NAME, PARTITION_PATH
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import ColumnBounds, Predicate, may_match
from lakeformat.write.partitions import partition_values

__all__ = ["prune_by_name", "reading_keys"]


def reading_keys(config: TableConfig) -> KeySettings:
    """How partition paths are to be read.

    Those of custom generators, whose types are not stored, and of generators that are not Hudi's tell nothing.
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


def prune_by_name(files: pa.Table, predicate: Predicate, keys: KeySettings, schema: pa.Schema) -> npt.NDArray[np.bool_]:
    """Which files may hold a match, judged by partition path, file name and instant.

    Args:
        files: of `lakeformat.timeline.live.FILE_COLUMNS`.
    """
    folders = files.column("partition_path").combine_chunks().dictionary_encode()
    values = [partition_values(path, keys, schema) for path in folders.dictionary.to_pylist()]
    missing = pa.scalar(None)
    bounds = {}
    for name in {name for found in values for name in found} & {*schema.names}:
        of_folders = pa.array([found.get(name, missing).as_py() for found in values], schema.field(name).type)
        bounds[name] = _exactly(of_folders.take(folders.indices))
    bounds[PARTITION_PATH] = _exactly(folders.dictionary_decode())
    bounds[FILE_NAME] = _exactly(files.column("name").combine_chunks())
    newest = files.column("instant_time").combine_chunks()
    unknown = pa.nulls(len(newest), pa.int64())
    bounds[COMMIT_TIME] = ColumnBounds(pa.nulls(len(newest), pa.string()), newest, unknown)
    return may_match(predicate, bounds, unknown)


def _exactly(values: pa.Array) -> ColumnBounds:
    """Bounds of columns that have one value a file; null where the value is not known."""
    nulls = pc.if_else(pc.is_valid(values), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))
    return ColumnBounds(values, values, nulls)
