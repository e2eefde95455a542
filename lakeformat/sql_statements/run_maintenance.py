"""How statements about one table are carried out, by any host: what is told of it, and how it is kept in order.

Procedures of ``call``: Hudi's names for what a table's own verbs do.

What ``describe`` and ``show create table`` tell of a table, as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import read_schema
from lakeformat.errors import InvalidInputError, SchemaMismatchError, UnsupportedTableError, nearest
from lakeformat.keys.partition_paths import partition_paths, partition_values
from lakeformat.model.keys import KeySettings, PartitionField
from lakeformat.predicate import bind_where, mask
from lakeformat.sql_statements.ddl import AddColumns, DropPartitions, sql_type
from lakeformat.sql_statements.maintenance import (
    DescribeTable,
    Optimize,
    RestoreTable,
    ShowTable,
    TruncateTable,
    Vacuum,
)
from lakeformat.sql_statements.parse import Call, TableName
from lakeformat.sql_statements.recognize import TableStatement
from lakeformat.sql_statements.time_travel import as_of, commit_times
from lakeformat.table import Table
from lakeformat.write.plan.table_settings import key_settings

__all__ = ["called_table", "columns_told", "create_told", "detail_told", "history_told", "run_call", "run_on", "told"]

_TABLE: Final = ("table", "path", "basepath", "base_path")


def called_table(call: Call) -> str:
    """The table that a call names: its name or path.

    Raises:
        InvalidInputError: it names none.
    """
    said = next((call.arguments[name] for name in _TABLE if name in call.arguments), None)
    said = call.unnamed[0] if said is None and call.unnamed else said
    if not isinstance(said, str):
        raise InvalidInputError(f"call {call.procedure} names no table; write {call.procedure}(table => 'name')")
    return said


def run_call(call: Call, table: Any) -> pa.Table:
    """Carry out a procedure; what it answers, as rows.

    Args:
        table: a `lakeformat.Table` or `LakehouseTable`.

    Raises:
        UnsupportedTableError: no such procedure here.
        InvalidInputError: an argument that it does not take.
    """
    found = _PROCEDURES.get(call.procedure)
    if found is None:
        known = nearest(call.procedure, _PROCEDURES)
        raise UnsupportedTableError(f"call {call.procedure} is not there{known}; there are {', '.join(_PROCEDURES)}")
    takes, run = found
    strange = set(call.arguments) - set(takes) - set(_TABLE)
    if strange:
        raise InvalidInputError(
            f"call {call.procedure} takes no {', '.join(sorted(strange))}; it takes {', '.join(takes)}"
        )
    return run(table, call.arguments)


def _listed(text: Any) -> list[str] | None:
    return None if text is None else [name.strip() for name in str(text).split(",") if name.strip()]


def told(result: Any) -> pa.Table:
    """What a verb answered, as one row: the instant, and the line that it prints."""
    return pa.table({"instant_time": [getattr(result, "instant_time", "")], "result": [str(result)]})


def _planned(instant_time: str | None) -> pa.Table:
    said = "planned" if instant_time else "there is nothing to do"
    return pa.table({"instant_time": pa.array([instant_time], pa.string()), "result": [said]})


def _clustering(table: Any, said: Mapping[str, Any]) -> pa.Table:
    by, how = _listed(said.get("order")), {"partitions": _listed(said.get("selected_partitions"))}
    if str(said.get("op", "")).lower() == "schedule":
        planned = table.schedule_clustering(by, **how)
        return _planned(planned)
    return told(table.cluster(by, **how))


def _compaction(table: Any, said: Mapping[str, Any]) -> pa.Table:
    if str(said.get("op", "run")).lower() == "schedule":
        planned = table.schedule_compaction()
        return _planned(planned)
    return told(table.compact())


def _clean(table: Any, said: Mapping[str, Any]) -> pa.Table:
    return told(table.clean(commits=said.get("retain_commits"), hours=said.get("hours_retained")))


def _ttl(table: Any, said: Mapping[str, Any]) -> pa.Table:
    return told(table.expire_partitions(days=said.get("retain_days")))


def _commits(table: Any, said: Mapping[str, Any]) -> pa.Table:
    entries = table.history(said.get("limit", 10), actions=True)
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


def _verb(name: str, argument: str, *, wanted: bool = True) -> Callable[[Any, Mapping[str, Any]], pa.Table]:
    def run(table: Any, said: Mapping[str, Any]) -> pa.Table:
        if not hasattr(table, name):
            raise UnsupportedTableError(f"{name} is not built yet; Apache Hudi's own tools do it on these tables")
        given = said.get(argument)
        if wanted and given is None:
            raise InvalidInputError(f"the call needs {argument} => '...'")
        return told(getattr(table, name)(*([] if given is None else [given])))

    return run


#: Procedure -> the arguments beside the table, and what it does.
_PROCEDURES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Any, Mapping[str, Any]], pa.Table]]]] = {
    "show_commits": (("limit",), _commits),
    "run_clustering": (("order", "op", "selected_partitions"), _clustering),
    "run_compaction": (("op",), _compaction),
    "run_clean": (("retain_commits", "hours_retained"), _clean),
    "run_ttl": (("retain_days",), _ttl),
    "create_savepoint": (("commit_time",), _verb("savepoint", "commit_time", wanted=False)),
    "delete_savepoint": (("instant_time",), _verb("delete_savepoint", "instant_time")),
    "rollback_to_savepoint": (("instant_time",), _verb("restore", "instant_time")),
    "rollback_to_instant": (("instant_time",), _verb("restore", "instant_time")),
}


def columns_told(table: Table, *, extended: bool) -> pa.Table:
    """Names and types, the partition columns again, and with ``extended`` what the table is; as Spark lists them."""
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


def detail_told(table: Table) -> pa.Table:
    """One row: place, kind, keys, live files and bytes; Delta's names where it has one."""
    said = table.describe()
    return pa.table(
        {
            "format": ["hudi"],
            "name": [said.name],
            "location": [said.location],
            "kind": [said.kind],
            "version": [said.version],
            "recordKey": pa.array([said.record_key], pa.list_(pa.string())),
            "partitionColumns": pa.array([said.partition_by], pa.list_(pa.string())),
            "ordering": pa.array([said.ordering], pa.list_(pa.string())),
            "numFiles": [said.files],
            "sizeInBytes": [said.size_bytes],
            "lastInstant": pa.array([said.instant_time], pa.string()),
        }
    )


def history_told(table: Table, limit: int | None) -> pa.Table:
    """List commits, newest first, with the version and the time that ``as of`` takes; and cleans, rollbacks, restores
    and savepoints, which have no version.
    """
    entries = table.history(limit, actions=True)
    versions = {time: version for version, time in enumerate(commit_times(table.engine.store))}
    counts = [(each.report or {}).get("rows", {}) for each in entries]
    return pa.table(
        {
            "version": pa.array([versions.get(e.instant_time) if e.is_commit else None for e in entries], pa.int64()),
            "timestamp": pa.array([_moment(each.instant_time) for each in entries], pa.string()),
            "instant_time": pa.array([each.instant_time for each in entries], pa.string()),
            "operation": pa.array([each.operation for each in entries], pa.string()),
            "rows_written": pa.array([each.rows_written if each.is_commit else None for each in entries], pa.int64()),
            **{
                name: pa.array([count.get(name) for count in counts], pa.int64())
                for name in ("inserted", "updated", "deleted")
            },
            "files_written": pa.array([each.files_written for each in entries], pa.int64()),
            "statement": pa.array([each.statement or None for each in entries], pa.string()),
            "detail": pa.array([each.detail or None for each in entries], pa.string()),
        }
    )


def _moment(instant: str) -> str:
    """``yyyy-MM-dd HH:mm:ss[.SSS]`` in the timeline's zone."""
    day, time, fraction = instant[:8], instant[8:14], instant[14:17]
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:]}" + f".{fraction}" * bool(fraction)


def create_told(table: Table, name: TableName) -> pa.Table:
    """One row: the statement that makes such a table, elsewhere."""
    config, schema = table.config, table.schema
    columns = ",\n".join(f"  `{field.name}` {sql_type(field.type)}" for field in schema)
    said = {
        "type": "mor" if config.takes_logs else "cow",
        "primaryKey": ",".join(config.record_fields),
        "preCombineField": ",".join(config.ordering_fields),
        "hoodie.write.table.version": str(config.version),
        "hoodie.datasource.write.hive_style_partitioning": str(config.hive_style).lower(),
    }
    properties = ",\n".join(f"  '{key}' = '{value}'" for key, value in said.items() if value)
    fields = ", ".join(f"`{PartitionField.parse(each).name}`" for each in config.partition_fields)
    by = f"partitioned by ({fields})\n" if fields else ""
    called = f"lakehouse.`{name.path}`" if name.path else name.name
    text = f"create table {called} (\n{columns}\n) using lakehouse\n{by}tblproperties (\n{properties}\n)"
    location = "" if name.path else f"\nlocation '{table.engine.storage.location}'"
    return pa.table({"createtab_stmt": [text + location]})


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
            snapshot = here.snapshot(as_of(here.engine.store, said.kind, said.point))
            if snapshot.instant_time is None:
                raise InvalidInputError(f"no commit is as old as {said.point}; truncate table empties the table")
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
    if len(new) < len(said.columns) and not said.if_not_exists:
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
