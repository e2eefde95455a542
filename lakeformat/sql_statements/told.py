"""What ``describe`` and ``show create table`` tell of a table, as rows."""

from __future__ import annotations

import pyarrow as pa

from lakeformat.model.keys import PartitionField
from lakeformat.sql_statements.column_types import sql_type
from lakeformat.sql_statements.parse import TableName
from lakeformat.sql_statements.past import commit_times
from lakeformat.table import Table

__all__ = ["columns_told", "create_told", "detail_told", "history_told"]


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
