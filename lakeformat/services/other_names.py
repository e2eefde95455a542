"""What other formats call the verbs of a table: whoever tries one is told ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakeformat.errors import nearest

__all__ = ["unknown_name"]

#: Verbs of delta-rs, pyiceberg, polars, pandas and Delta's Python -> how the same is said here.
_OURS: Final[Mapping[str, str]] = {
    "add_columns": "write rows that have the new columns",
    "append": "insert(rows)",
    "collect": "to_arrow()",
    "column_names": "schema.names",
    "columns": "schema.names",
    "data_files": "files()",
    "detail": "describe()",
    "drop_partitions": "delete_partitions(partitions)",
    "expire_snapshots": "clean()",
    "fetch_pandas": "to_pandas()",
    "file_uris": "files()",
    "filter": "scan(where=...)",
    "forPath": "lakeformat.open(path)",
    "generate": "files()",
    "get_add_actions": "files()",
    "head": "to_arrow(limit=10)",
    "inspect": "files() and history()",
    "is_deltatable": "lakeformat.exists(path)",
    "limit": "to_arrow(limit=10)",
    "load_as_version": "to_arrow(as_of=...)",
    "load_with_datetime": "to_arrow(as_of=...)",
    "merge_into": "merge(rows)",
    "metadata": "config",
    "num_rows": "count()",
    "optimize": "cluster(by=...)",
    "overwrite_partitions": "insert_overwrite(rows)",
    "partitions": "files()",
    "protocol": "config",
    "read": "to_arrow()",
    "rename": "lakeformat.open(path), after its folder has been moved",
    "replace": "overwrite(rows)",
    "restoreToVersion": "restore(...)",
    "select": "scan(columns)",
    "shape": "count()",
    "snapshots": "history()",
    "toDF": "to_arrow(), or lakeformat.spark.read(spark, path)",
    "to_pyarrow": "to_arrow()",
    "to_pyarrow_dataset": "scan(), which anything that takes Arrow streams takes",
    "to_pyarrow_table": "to_arrow()",
    "to_table": "to_arrow()",
    "vacuum": "clean()",
    "version": "history()",
    "z_order": 'cluster(by=..., curve="z-order")',
    "zorder": 'cluster(by=..., curve="z-order")',
}


def unknown_name(kind: type, name: str) -> str:
    """What to say of an attribute that a table does not have.

    >>> unknown_name(object, "vacuum")
    "object has no 'vacuum'; what other formats call so is clean(), which is not built yet"
    """
    said = f"{kind.__name__} has no {name!r}"
    ours = _OURS.get(name)
    if ours is None:
        return said + nearest(name, [known for known in dir(kind) if not known.startswith("_")])
    verb = ours.partition("(")[0]
    is_missing = verb.isidentifier() and ours.endswith(")") and not hasattr(kind, verb)
    return f"{said}; what other formats call so is {ours}{', which is not built yet' * is_missing}"
