"""How statements about one table are carried out, by any host: what is told of it, and how it is kept in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.conform import read_schema
from lakeformat.errors import InvalidInputError, SchemaMismatchError, UnsupportedTableError
from lakeformat.keys.partition_paths import partition_paths, partition_values
from lakeformat.model.keys import KeySettings
from lakeformat.predicate import bind_where, mask
from lakeformat.sql_statements.calls import told
from lakeformat.sql_statements.definitions import AddColumns, DropPartitions
from lakeformat.sql_statements.past import as_of
from lakeformat.sql_statements.told import columns_told, create_told, detail_told, history_told
from lakeformat.sql_statements.understand import TableStatement
from lakeformat.sql_statements.upkeep import DescribeTable, Optimize, RestoreTable, ShowTable, TruncateTable, Vacuum
from lakeformat.table import Table
from lakeformat.write.decide.table_settings import key_settings

__all__ = ["run_on"]


def run_on(said: TableStatement, table: Any) -> pa.Table:
    """Carry a statement out; what it answers, as rows.

    Args:
        table: a `lakeformat.Table` or `LakehouseTable`: who rewrites and deletes files.

    Raises:
        InvalidInputError: what the table does not have.
        InstantNotAvailableError: a version or time that cannot be had.
        WriteConflictError: another writer was in the way; a retry is safe.
    """
    here = Table(table.engine.storage, table.options)
    match said:
        case DescribeTable():
            return _described(said, here)
        case ShowTable():
            return _shown(said, here)
        case AddColumns():
            return _add_columns(said, here)
        case DropPartitions():
            paths = [_path(here, each) for each in said.partitions]
            return told(here.delete_partitions(paths))
        case TruncateTable():
            return _truncate(said, here)
        case Optimize():
            return _optimize(said, here, table)
        case Vacuum():
            return _vacuum(said, table)
        case RestoreTable():
            snapshot = here.snapshot(as_of(here.engine.store, said.kind, said.said))
            if snapshot.instant_time is None:
                raise InvalidInputError(f"no commit is as old as {said.said}; truncate table empties the table")
            return told(table.restore(snapshot.instant_time))


def _described(said: DescribeTable, table: Table) -> pa.Table:
    if said.what == "history":
        return history_told(table, said.limit)
    return detail_told(table) if said.what == "detail" else columns_told(table, extended=said.what == "extended")


def _shown(said: ShowTable, table: Table) -> pa.Table:
    if said.what == "partitions":
        return pa.table({"partition": _partitions(table)})
    if said.what == "create":
        return create_told(table, said.target)
    values = sorted(table.config.values.items())
    return pa.table({"key": [key for key, _ in values], "value": [value for _, value in values]})


def _partitions(table: Table) -> pa.Array:
    """Paths of all partitions that hold files, in order."""
    if not table.config.partition_fields:
        raise InvalidInputError(f"{table.engine.storage.location} has no partitions")
    paths = pc.unique(table.files().column("partition_path"))
    return paths.take(pc.sort_indices(paths))


def _add_columns(said: AddColumns, table: Table) -> pa.Table:
    """By a commit without rows, which carries the columns."""
    there = {name.lower() for name in table.schema.names}
    new = [field for field in said.columns if field.name.lower() not in there]
    if len(new) < len(said.columns) and not said.lenient:
        known = next(field.name for field in said.columns if field.name.lower() in there)
        raise SchemaMismatchError(f"column {known!r} is there already; write add columns if not exists")
    if not new:
        return pa.table({"instant_time": pa.array([None], pa.string()), "result": ["there is nothing to do"]})
    return told(table.insert(pa.schema([*table.schema, *new]).empty_table()))


def _truncate(said: TruncateTable, table: Table) -> pa.Table:
    if said.partition is not None:
        return told(table.delete_partitions(_path(table, said.partition)))
    return told(table.overwrite(table.schema.empty_table()))


def _path(table: Table, spec: Mapping[str, str | None]) -> str:
    """The partition that values of all partition columns name."""
    config, schema = table.config, table.schema
    wanted = {name.lower(): value for name, value in spec.items()}
    if sorted(wanted) != sorted(name.lower() for name in config.partition_fields):
        names = ", ".join(config.partition_fields) or "none"
        raise InvalidInputError(f"partition ({', '.join(spec)}) is not supported; give all partition columns: {names}")
    columns = {}
    for name in config.partition_fields:
        try:
            columns[name] = pa.array([wanted[name.lower()]], pa.string()).cast(schema.field(name).type)
        except (pa.ArrowException, KeyError) as error:
            raise InvalidInputError(f"{spec} names no partition: {error}") from None
    return str(partition_paths(pa.table(columns), key_settings(config, table.options))[0].as_py())


def _optimize(said: Optimize, table: Table, rewriter: Any) -> pa.Table:
    how: dict[str, Any] = {"curve": "z-order"} if len(said.by) > 1 else {}
    if said.where is not None:
        how["partitions"] = _chosen(table, said.where)
        if not how["partitions"]:
            return pa.table({"instant_time": pa.array([None], pa.string()), "result": ["no partition is meant"]})
    return told(rewriter.cluster(list(said.by) or None, **how))


def _chosen(table: Table, where: str) -> list[str]:
    """The partitions for whose values a condition holds."""
    config, schema = table.config, table.schema
    keys, paths = key_settings(config, table.options), _partitions(table).to_pylist()
    values = _values(paths, keys, schema)
    wanted = bind_where(where, values.schema)
    return [path for path, is_chosen in zip(paths, mask(wanted, values).to_pylist(), strict=True) if is_chosen]


def _values(paths: Sequence[str], keys: KeySettings, schema: pa.Schema) -> pa.Table:
    known = [partition_values(path, keys, schema) for path in paths]
    names = set(schema.names)
    fields = [schema.field(field.name) for field in keys.partition_fields if field.name in names]
    if any(field.name not in row for row in known for field in fields) or len(fields) < len(keys.partition_fields):
        raise UnsupportedTableError(
            "optimize ... where: the partitions' paths do not tell their values; name paths: cluster(partitions=[...])"
        )
    return pa.table(
        [pa.array([row[field.name].as_py() for row in known], field.type) for field in read_schema(pa.schema(fields))],
        names=[field.name for field in fields],
    )


def _vacuum(said: Vacuum, table: Any) -> pa.Table:
    result = table.clean(hours=said.hours, dry_run=said.dry_run)
    if not said.dry_run:
        return told(result)
    files = result.files
    return pa.table(
        {
            "path": pa.array([file.path for file in files], pa.string()),
            "size_bytes": pa.array([file.size_bytes for file in files], pa.int64()),
        }
    )
