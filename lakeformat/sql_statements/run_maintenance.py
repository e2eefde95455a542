"""Running of statements on one table, for all hosts: ``describe``, ``show``, table services, and ``call``.

The procedures of ``call`` have Hudi's names and run methods of `lakeformat.Table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import reader_schema
from lakeformat.errors import InvalidInputError, SchemaMismatchError, UnsupportedTableError, nearest
from lakeformat.keys.partition_paths import partition_paths, partition_values
from lakeformat.model.keys import KeySettings, PartitionField
from lakeformat.predicate import bind_where, mask
from lakeformat.services.alter.alter import alter_columns
from lakeformat.services.alter.changes import AddColumn, DropColumn
from lakeformat.sql_statements.alter import AlterColumns
from lakeformat.sql_statements.ddl import AddColumns, DropPartitions, sql_type
from lakeformat.sql_statements.maintenance import (
    CreateIndex,
    DescribeTable,
    DropIndex,
    Optimize,
    RestoreTable,
    ShowIndexes,
    ShowTable,
    TruncateTable,
    Vacuum,
)
from lakeformat.sql_statements.parse import Call, TableName
from lakeformat.sql_statements.recognize import TableStatement
from lakeformat.sql_statements.time_travel import resolve_as_of
from lakeformat.table import Table
from lakeformat.write.plan.table_settings import key_settings

__all__ = [
    "describe_columns",
    "describe_detail",
    "describe_history",
    "find_called_table",
    "result_row",
    "run_call",
    "run_on_table",
    "show_create",
]

_TABLE: Final = ("table", "path", "basepath", "base_path")


def find_called_table(call: Call) -> str:
    """Return the name or path of a ``call``'s table, from the argument for the table, else the first unnamed one.

    Raises:
        InvalidInputError: if the call names no table.
    """
    name = next((call.arguments[name] for name in _TABLE if name in call.arguments), None)
    name = call.unnamed[0] if name is None and call.unnamed else name
    if not isinstance(name, str):
        raise InvalidInputError(f"call {call.procedure} names no table; write {call.procedure}(table => 'name')")
    return name


def run_call(call: Call, table: Any) -> pa.Table:
    """Run the procedure of a ``call`` and return its result as rows.

    Args:
        table: a `lakeformat.Table` or `LakehouseTable`.

    Raises:
        UnsupportedTableError: if there is no such procedure.
        InvalidInputError: if the procedure does not have one of the arguments.
    """
    procedure = _PROCEDURES.get(call.procedure)
    if procedure is None:
        hint = nearest(call.procedure, _PROCEDURES)
        raise UnsupportedTableError(f"call {call.procedure} is not supported{hint}; there are {', '.join(_PROCEDURES)}")
    arguments, run = procedure
    unknown = set(call.arguments) - set(arguments) - set(_TABLE)
    if unknown:
        raise InvalidInputError(
            f"call {call.procedure} takes no {', '.join(sorted(unknown))}; it takes {', '.join(arguments)}"
        )
    return run(table, call.arguments)


def _split_names(text: Any) -> list[str] | None:
    return None if text is None else [name.strip() for name in str(text).split(",") if name.strip()]


def result_row(result: Any) -> pa.Table:
    """Return the result of a table service as one row: its instant time ("" if it has none), and ``str(result)``."""
    return pa.table({"instant_time": [getattr(result, "instant_time", "")], "result": [str(result)]})


def _planned_row(instant_time: str | None) -> pa.Table:
    message = "planned" if instant_time else "there is nothing to do"
    return pa.table({"instant_time": pa.array([instant_time], pa.string()), "result": [message]})


def _clustering(table: Any, arguments: Mapping[str, Any]) -> pa.Table:
    by, options = (
        _split_names(arguments.get("order")),
        {"partitions": _split_names(arguments.get("selected_partitions"))},
    )
    if str(arguments.get("op", "")).lower() == "schedule":
        planned = table.schedule_clustering(by, **options)
        return _planned_row(planned)
    return result_row(table.cluster(by, **options))


def _compaction(table: Any, arguments: Mapping[str, Any]) -> pa.Table:
    if str(arguments.get("op", "run")).lower() == "schedule":
        planned = table.schedule_compaction()
        return _planned_row(planned)
    return result_row(table.compact())


def _clean(table: Any, arguments: Mapping[str, Any]) -> pa.Table:
    return result_row(table.clean(commits=arguments.get("retain_commits"), hours=arguments.get("hours_retained")))


def _ttl(table: Any, arguments: Mapping[str, Any]) -> pa.Table:
    return result_row(table.expire_partitions(days=arguments.get("retain_days")))


def _sync(table: Any, arguments: Mapping[str, Any]) -> pa.Table:
    if arguments.get("to") is None:
        raise InvalidInputError("the call needs to => 'delta' or 'iceberg'")
    return result_row(table.sync(arguments["to"], replace=str(arguments.get("replace", False)).lower() == "true"))


def _commits(table: Any, arguments: Mapping[str, Any]) -> pa.Table:
    entries = table.history(arguments.get("limit", 10), actions=True)
    return pa.table(
        {
            "commit_time": pa.array([entry.instant_time for entry in entries], pa.string()),
            "action": pa.array([entry.action for entry in entries], pa.string()),
            "operation": pa.array([entry.operation for entry in entries], pa.string()),
            "total_records_written": pa.array([entry.rows_written for entry in entries], pa.int64()),
            "total_files_written": pa.array([entry.files_written for entry in entries], pa.int64()),
            "statement": pa.array([entry.statement or None for entry in entries], pa.string()),
            "detail": pa.array([entry.detail or None for entry in entries], pa.string()),
        }
    )


def _make_procedure(
    name: str, argument: str, *, is_required: bool = True
) -> Callable[[Any, Mapping[str, Any]], pa.Table]:
    def run(table: Any, arguments: Mapping[str, Any]) -> pa.Table:
        if not hasattr(table, name):
            raise UnsupportedTableError(f"{name} is not built yet; Apache Hudi's own tools do it on these tables")
        given = arguments.get(argument)
        if is_required and given is None:
            raise InvalidInputError(f"the call needs {argument} => '...'")
        return result_row(getattr(table, name)(*([] if given is None else [given])))

    return run


#: Maps each procedure of ``call`` to the names of its arguments, except the table, and to the function that runs it.
_PROCEDURES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Any, Mapping[str, Any]], pa.Table]]]] = {
    "show_commits": (("limit",), _commits),
    "run_clustering": (("order", "op", "selected_partitions"), _clustering),
    "run_compaction": (("op",), _compaction),
    "run_clean": (("retain_commits", "hours_retained"), _clean),
    "run_ttl": (("retain_days",), _ttl),
    "sync": (("to", "replace"), _sync),
    "create_savepoint": (("commit_time",), _make_procedure("savepoint", "commit_time", is_required=False)),
    "delete_savepoint": (("instant_time",), _make_procedure("delete_savepoint", "instant_time")),
    "rollback_to_savepoint": (("instant_time",), _make_procedure("restore", "instant_time")),
    "rollback_to_instant": (("instant_time",), _make_procedure("restore", "instant_time")),
}


def describe_columns(table: Table, *, extended: bool) -> pa.Table:
    """Return the names and types of the columns as Spark lists them, then the partition columns.

    Args:
        extended: whether to add rows with the table's settings.
    """
    schema, partitions = table.schema, table.config.partition_fields
    rows = [(field.name, sql_type(field.type)) for field in schema]
    if partitions:
        types = dict(rows)
        rows += [("# Partition Information", ""), ("# col_name", "data_type")]
        rows += [(name, types.get(name, "")) for name in partitions]
    if extended:
        rows += [("", ""), ("# Detailed Table Information", "")]
        rows += [(line[:16].strip(), line[16:].strip()) for line in str(table.describe()).splitlines()]
    return pa.table(
        {
            "col_name": [name for name, _ in rows],
            "data_type": [kind for _, kind in rows],
            "comment": pa.nulls(len(rows), pa.string()),
        }
    )


def describe_detail(table: Table) -> pa.Table:
    """Return one row with the table's path, kind, keys, number of live files, and size in bytes.

    A column that Delta's ``describe detail`` also has, has the same name as there.
    """
    description = table.describe()
    return pa.table(
        {
            "format": ["hudi"],
            "name": [description.name],
            "location": [description.location],
            "kind": [description.kind],
            "version": [description.version],
            "recordKey": pa.array([description.record_key], pa.list_(pa.string())),
            "partitionColumns": pa.array([description.partition_by], pa.list_(pa.string())),
            "ordering": pa.array([description.ordering], pa.list_(pa.string())),
            "numFiles": [description.files],
            "sizeInBytes": [description.size_bytes],
            "lastInstant": pa.array([description.instant_time], pa.string()),
        }
    )


def describe_history(table: Table, limit: int | None) -> pa.Table:
    """Return a row per action of the timeline, newest first. Commits are numbered from 0, oldest first.

    The column ``version`` has this number, which ``version as of`` accepts, and ``timestamp`` the time that ``timestamp
    as of`` accepts. Cleans, rollbacks, restores and savepoints have no version.
    """
    entries = table.history(limit, actions=True)
    counts = [(entry.report or {}).get("rows", {}) for entry in entries]
    return pa.table(
        {
            "version": pa.array([entry.version for entry in entries], pa.int64()),
            "timestamp": pa.array([_timestamp(entry.instant_time) for entry in entries], pa.string()),
            "instant_time": pa.array([entry.instant_time for entry in entries], pa.string()),
            "operation": pa.array([entry.operation for entry in entries], pa.string()),
            "rows_written": pa.array(
                [entry.rows_written if entry.is_commit else None for entry in entries], pa.int64()
            ),
            **{
                name: pa.array([count.get(name) for count in counts], pa.int64())
                for name in ("inserted", "updated", "deleted")
            },
            "files_written": pa.array([entry.files_written for entry in entries], pa.int64()),
            "statement": pa.array([entry.statement or None for entry in entries], pa.string()),
            "detail": pa.array([entry.detail or None for entry in entries], pa.string()),
        }
    )


def _timestamp(instant: str) -> str:
    """Return an instant time as ``yyyy-MM-dd HH:mm:ss[.SSS]``, in the time zone of the timeline."""
    day, time, fraction = instant[:8], instant[8:14], instant[14:17]
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:]}" + f".{fraction}" * bool(fraction)


def show_create(table: Table, name: TableName) -> pa.Table:
    """Return one row: a ``create table`` statement with this table's columns and settings."""
    config, schema = table.config, table.schema
    columns = ",\n".join(f"  `{field.name}` {sql_type(field.type)}" for field in schema)
    properties_of = {
        "type": "mor" if config.takes_logs else "cow",
        "primaryKey": ",".join(config.record_fields),
        "preCombineField": ",".join(config.ordering_fields),
        "hoodie.write.table.version": str(config.version),
        "hoodie.datasource.write.hive_style_partitioning": str(config.hive_style).lower(),
    }
    properties = ",\n".join(f"  '{key}' = '{value}'" for key, value in properties_of.items() if value)
    fields = ", ".join(f"`{PartitionField.parse(field).name}`" for field in config.partition_fields)
    by = f"partitioned by ({fields})\n" if fields else ""
    table_name = f"lakehouse.`{name.path}`" if name.path else name.name
    text = f"create table {table_name} (\n{columns}\n) using lakehouse\n{by}tblproperties (\n{properties}\n)"
    location = "" if name.path else f"\nlocation '{table.context.storage.location}'"
    return pa.table({"createtab_stmt": [text + location]})


def run_on_table(statement: TableStatement, table: Any) -> pa.Table:
    """Run a statement on a table and return its result as rows.

    Args:
        table: a `lakeformat.Table` or `LakehouseTable`, whose methods run the table services.

    Raises:
        InvalidInputError: if the table does not have the partition, partition columns or commit of the statement.
        InstantNotAvailableError: if a version or time is not available.
        WriteConflictError: if another writer interfered. A retry is safe.
    """
    local_table = Table(table.context.storage, table.options)
    match statement:
        case DescribeTable():
            return _describe_table(statement, local_table)
        case ShowTable():
            return _show_table(statement, local_table)
        case AddColumns():
            return _add_columns(statement, local_table)
        case AlterColumns():
            return _alter_columns(statement, local_table)
        case DropPartitions():
            paths = [_path(local_table, spec) for spec in statement.partitions]
            return result_row(local_table.delete_partitions(paths))
        case TruncateTable():
            return _truncate(statement, local_table)
        case Optimize():
            return _optimize(statement, local_table, table)
        case Vacuum():
            return _vacuum(statement, table)
        case CreateIndex() | DropIndex() | ShowIndexes():
            return _run_on_indexes(statement, local_table)
        case RestoreTable():
            snapshot = local_table.snapshot(resolve_as_of(local_table.context.store, statement.kind, statement.point))
            if snapshot.instant_time is None:
                raise InvalidInputError(f"no commit is as old as {statement.point}; truncate table empties the table")
            return result_row(table.restore(snapshot.instant_time))


def _describe_table(statement: DescribeTable, table: Table) -> pa.Table:
    if statement.what == "history":
        return describe_history(table, statement.limit)
    return (
        describe_detail(table)
        if statement.what == "detail"
        else describe_columns(table, extended=statement.what == "extended")
    )


def _show_table(statement: ShowTable, table: Table) -> pa.Table:
    if statement.what == "partitions":
        return pa.table({"partition": _partitions(table)})
    if statement.what == "create":
        return show_create(table, statement.target)
    values = sorted(table.config.values.items())
    return pa.table({"key": [key for key, _ in values], "value": [value for _, value in values]})


def _partitions(table: Table) -> pa.Array:
    """Return the sorted paths of all partitions with live files."""
    if not table.config.partition_fields:
        raise InvalidInputError(f"{table.context.storage.location} has no partitions")
    paths = pc.unique(table.files().column("partition_path"))
    return paths.take(pc.sort_indices(paths))


def _add_columns(statement: AddColumns, table: Table) -> pa.Table:
    """Add columns after the others, except those that are there."""
    existing = {name.lower() for name in table.schema.names}
    new = [field for field in statement.columns if field.name.lower() not in existing]
    if len(new) < len(statement.columns) and not statement.if_not_exists:
        present = next(field.name for field in statement.columns if field.name.lower() in existing)
        raise SchemaMismatchError(f"column {present!r} is there already; write add columns if not exists")
    if not new:
        return _nothing_to_do()
    changes = tuple(AddColumn(field.name, field.type) for field in new)
    return result_row(alter_columns(table.context, table.options, changes, table.update))


def _alter_columns(statement: AlterColumns, table: Table) -> pa.Table:
    names, changes = {*table.schema.names}, statement.changes
    if statement.if_exists:
        changes = tuple(change for change in changes if not isinstance(change, DropColumn) or change.path in names)
    if not changes:
        return _nothing_to_do()
    return result_row(alter_columns(table.context, table.options, changes, table.update))


def _nothing_to_do() -> pa.Table:
    return pa.table({"instant_time": pa.array([None], pa.string()), "result": ["there is nothing to do"]})


def _truncate(statement: TruncateTable, table: Table) -> pa.Table:
    if statement.partition is not None:
        return result_row(table.delete_partitions(_path(table, statement.partition)))
    return result_row(table.overwrite(table.schema.empty_table()))


def _path(table: Table, spec: Mapping[str, str | None]) -> str:
    """Return the partition path for a mapping of all partition columns to values as text."""
    config, schema = table.config, table.schema
    values_by_name = {name.lower(): value for name, value in spec.items()}
    if sorted(values_by_name) != sorted(name.lower() for name in config.partition_fields):
        names = ", ".join(config.partition_fields) or "none"
        raise InvalidInputError(f"partition ({', '.join(spec)}) is not supported; give all partition columns: {names}")
    columns = {}
    for name in config.partition_fields:
        try:
            columns[name] = pa.array([values_by_name[name.lower()]], pa.string()).cast(schema.field(name).type)
        except (pa.ArrowException, KeyError) as error:
            raise InvalidInputError(f"{spec} names no partition: {error}") from None
    return str(partition_paths(pa.table(columns), key_settings(config, table.options))[0].as_py())


def _optimize(statement: Optimize, table: Table, rewriter: Any) -> pa.Table:
    options: dict[str, Any] = {"curve": "z-order"} if len(statement.by) > 1 else {}
    if statement.where is not None:
        options["partitions"] = _matching_partitions(table, statement.where)
        if not options["partitions"]:
            return pa.table({"instant_time": pa.array([None], pa.string()), "result": ["no partition is meant"]})
    return result_row(rewriter.cluster(list(statement.by) or None, **options))


def _matching_partitions(table: Table, where: str) -> list[str]:
    """Return the paths of the partitions whose partition values satisfy a SQL condition."""
    config, schema = table.config, table.schema
    keys, paths = key_settings(config, table.options), _partitions(table).to_pylist()
    values = _partition_values_table(paths, keys, schema)
    condition = bind_where(where, values.schema)
    return [path for path, is_chosen in zip(paths, mask(condition, values).to_pylist(), strict=True) if is_chosen]


def _partition_values_table(paths: Sequence[str], keys: KeySettings, schema: pa.Schema) -> pa.Table:
    values_of = [partition_values(path, keys, schema) for path in paths]
    names = set(schema.names)
    fields = [schema.field(field.name) for field in keys.partition_fields if field.name in names]
    if any(field.name not in row for row in values_of for field in fields) or len(fields) < len(keys.partition_fields):
        raise UnsupportedTableError(
            "optimize ... where: the values cannot be read from the partition paths; name paths: "
            "cluster(partitions=[...])"
        )
    return pa.table(
        [
            pa.array([row[field.name].as_py() for row in values_of], field.type)
            for field in reader_schema(pa.schema(fields))
        ],
        names=[field.name for field in fields],
    )


def _run_on_indexes(statement: CreateIndex | DropIndex | ShowIndexes, table: Table) -> pa.Table:
    """Make or drop an index, or list the indexes with the columns that Hudi's ``show indexes`` has."""
    there = table.indexes()
    names = {index.name for index in there}
    match statement:
        case ShowIndexes():
            return pa.table(
                {
                    "index_name": pa.array([index.name for index in there], pa.string()),
                    "index_type": pa.array([index.type for index in there], pa.string()),
                    "cols": pa.array([",".join(index.columns) for index in there], pa.string()),
                    "file_groups": pa.array([index.file_groups for index in there], pa.int64()),
                    "size_bytes": pa.array([index.size_bytes for index in there], pa.int64()),
                }
            )
        case CreateIndex(index=name) if not (statement.if_not_exists and names & {name, f"secondary_index_{name}"}):
            keys = table.config.record_fields
            is_of_key = name in {"record_index", "bloom_filters"} and statement.columns == keys
            return result_row(table.create_index(name, None if is_of_key else statement.columns or None))
        case DropIndex(index=name) if not statement.if_exists or names & {name, f"secondary_index_{name}"}:
            return result_row(f"dropped {', '.join(table.drop_index(name))}")
    return result_row("there is nothing to do")


def _vacuum(statement: Vacuum, table: Any) -> pa.Table:
    result = table.clean(hours=statement.hours, dry_run=statement.dry_run)
    if not statement.dry_run:
        return result_row(result)
    files = result.files
    return pa.table(
        {
            "path": pa.array([file.path for file in files], pa.string()),
            "size_bytes": pa.array([file.size_bytes for file in files], pa.int64()),
        }
    )
