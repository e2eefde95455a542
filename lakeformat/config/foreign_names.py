"""Errors for arguments and methods that lakeformat does not have. They name lakeformat's equivalent.

The tables list the names that other libraries use, such as delta-rs, pyiceberg, polars and pandas.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from lakeformat.errors import InvalidOptionError, nearest
from lakeformat.public import public

__all__ = [
    "ForeignNames",
    "check_arguments",
    "check_write_arguments",
    "own_command",
    "own_flag",
    "refuse_others",
    "unknown_clause",
    "unknown_name",
]

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

#: Maps arguments of delta-rs, pyiceberg, polars and pandas to lakeformat's argument. The error proposes it if the
#: method has it.
_OWN_ARGUMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("condition", "expr", "filter", "filters", "predicate", "query", "row_filter"), "where"),
    **dict.fromkeys(("fields", "projection", "select", "selected_fields", "usecols"), "columns"),
    **dict.fromkeys(
        ("datetime", "instant", "snapshot_id", "timestamp", "timestamp_as_of", "version", "version_as_of"), "as_of"
    ),
    **dict.fromkeys(
        (
            "begin",
            "from_version",
            "since_version",
            "start",
            "start_timestamp",
            "start_version",
            "starting_timestamp",
            "starting_version",
        ),
        "since",
    ),
    **dict.fromkeys(
        ("end", "end_timestamp", "end_version", "ending_timestamp", "ending_version", "to_version"), "until"
    ),
    **dict.fromkeys(("head", "n", "n_rows", "nrows", "rows"), "limit"),
    **dict.fromkeys(("data", "df", "source", "source_data", "updates"), "rows"),
    **dict.fromkeys(("commit_properties", "custom_metadata", "metadata", "snapshot_properties"), "extra_metadata"),
}
#: Maps arguments of other libraries' writes, without an equivalent in lakeformat, to advice.
_ADVICE: Final[Mapping[str, str]] = {
    "predicate": "a merge matches rows by the table's record key; conditions are where=... of its clauses",
    "source_alias": 'leave it out: conditions name the source\'s columns "source.x"',
    "target_alias": 'leave it out: conditions name the table\'s columns "target.x"',
    **dict.fromkeys(
        ("id_columns", "join_cols", "join_columns", "key", "keys", "merge_keys", "on", "primary_key"),
        "rows match by the table's record key; leave it out",
    ),
    "mode": "each mode has a method of its own: insert, upsert, overwrite, insert_overwrite",
    "partition_by": "a table's partitions are named when it is made: lakeformat.create(path, schema, partition_by=...)",
    "schema_mode": "leave it out: new columns of the rows are added to the table",
    "safe_cast": "leave it out: a value that does not fit its column is refused",
}
_WHERE_OPTIONS_GO: Final = "; options are given when the table is opened"


def check_arguments(
    given: Iterable[str],
    known: Collection[str],
    otherwise: str = "",
    *,
    verb: str = "",
    advice: Mapping[str, str] | None = None,
) -> None:
    """Raise an error if a call has keyword arguments that the method does not have.

    Args:
        given: Names of the arguments of the call.
        known: Names of the arguments that the method has.
        otherwise: End of the message if there is no better hint, beginning with a semicolon.
        verb: Name of the method, for the message.
        advice: Maps arguments that the method does not have, in lower case, to the text to show for them.

    Raises:
        InvalidOptionError: There is an unknown argument. The message names the first one, and the nearest known one.
    """
    for name in given:
        if name not in known:
            own_name = _OWN_ARGUMENTS.get(name.lower())
            hint = f"; did you mean {own_name!r}?" if own_name in known else nearest(name, known)
            there = f"; there are {', '.join(known)}" if known else ""
            cure = f"; {advice[name.lower()]}" if advice and name.lower() in advice else hint or there + otherwise
            raise InvalidOptionError(f"unknown argument {name!r}{f' of {verb}()' if verb else ''}{cure}")


def check_write_arguments(given: Iterable[str], known: Collection[str], verb: str, otherwise: str) -> None:
    """Call `check_arguments` for a method that writes, with advice for arguments of other libraries' writes."""
    advice = {name: text for name, text in _ADVICE.items() if not (name == "predicate" and "where" in known)}
    check_arguments(given, known, otherwise, verb=verb, advice=advice)


def refuse_others(kind: type) -> None:
    """Wrap every public method of a class, so that unknown keyword arguments raise the error of `check_arguments`.

    Inherited methods are wrapped too. Methods with ``**kwargs`` are not wrapped, because they check their arguments
    themselves.
    """
    for name in dir(kind):
        method = inspect.getattr_static(kind, name)
        if name.startswith("_") or not isinstance(method, FunctionType) or hasattr(method, "__wrapped__"):
            continue
        given = inspect.signature(method).parameters.values()
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in given):
            setattr(kind, name, _wrap_checked(method, tuple(parameter.name for parameter in given)[1:]))


def _wrap_checked(method: Callable[..., Any], names: Collection[str]) -> Callable[..., Any]:
    @wraps(method)
    def checked(*given: Any, **named: Any) -> Any:
        if named:
            check_arguments(named, names, _WHERE_OPTIONS_GO, verb=method.__name__)
        return method(*given, **named)

    return checked


_ADD: Final = "write alter().add(...), or write rows that have the new column"
_RENAME: Final = "write alter().rename(...)"
_DROP: Final = "write alter().drop(...)"
_ALTER: Final = "write alter().add(...), alter().rename(...) or alter().drop(...)"
_RESTORE: Final = "write restore(...) with a version number or an instant time of history()"

#: Maps methods of other libraries, without an equivalent in lakeformat, to advice.
_INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "add_column",
            "add_columns",
            "addColumn",
            "add_field",
            "append_column",
            "withColumn",
            "with_column",
            "with_columns",
        ),
        _ADD,
    ),
    **dict.fromkeys(("change_column", "rename_column", "rename_columns", "renameColumn", "withColumnRenamed"), _RENAME),
    **dict.fromkeys(
        (
            "delete_column",
            "delete_columns",
            "drop_column",
            "drop_columns",
            "dropColumn",
            "remove_column",
            "remove_columns",
        ),
        _DROP,
    ),
    **dict.fromkeys(
        (
            "alter_column",
            "alter_columns",
            "alter_schema",
            "alter_table",
            "cast",
            "evolve_schema",
            "merge_schema",
            "modify_column",
            "move_column",
            "reorder_columns",
            "schema_evolution",
            "set_column",
            "set_type",
            "update_column",
            "update_columns",
            "update_schema",
            "widen_column",
        ),
        _ALTER,
    ),
    **dict.fromkeys(("restoreToTimestamp", "restoreToVersion", "restore_to_version", "rollback_to_snapshot"), _RESTORE),
    "drop": "to drop a column write alter().drop(...); to drop the table delete its folder",
    "drop_table": "a table is its folder: delete the folder",
    "maintenance": "write cluster(), compact(), clean() or archive()",
    "plot": "write layout_report(columns).figure(), or to_pandas().plot(...)",
    "refresh": "each read sees the newest commit; nothing needs to be refreshed",
    **dict.fromkeys(("blame", "audit", "who"), "write changes('000', images=True).to_arrow(where=...)"),
    **dict.fromkeys(("display", "print", "show"), "write print(table.read()), or to_pandas(limit=20)"),
    **{
        f"to_{kind}": f"on the command line write lakeformat read TABLE --format {kind} --output FILE; or to_pandas()"
        for kind in ("csv", "json", "parquet")
    },
    "save": "each write is published when it is made; to copy the rows write to_arrow()",
    "tail": "rows have no order; write read(where=...), or to_pandas().tail()",
    "sample": "write to_arrow(limit=...), or to_pandas().sample(...)",
    "transaction": "each verb is one commit, whole or not at all",
    **{f"to_{name}": f"write lakeformat.integrations.{name}.read_table(path)" for name in ("ray", "dask", "daft")},
    "alias": 'conditions of a merge name the two sides "source.x" and "target.x"; leave the alias out',
    "rename": "move the table's folder, and open it where it is then",
    "set_properties": "give options to lakeformat.open(path, ...); the table's own settings are fixed when it is made",
    "updateExpr": 'write lakeformat.sql("update t set ...", t=table), or update(set, where)',
}

#: Maps methods and properties of delta-rs, pyiceberg, hudi-rs, polars, pandas and Delta's Python to lakeformat's.
_OWN_CALLS: Final[Mapping[str, str]] = {
    "append": "insert(rows)",
    "cleanup_metadata": "archive()",
    "collect": "to_arrow()",
    "column_names": "schema.names",
    "columns": "schema.names",
    "convertToDelta": "lakeformat.adopt(path)",
    "createIfNotExists": "lakeformat.create(path, schema)",
    "createOrReplace": "lakeformat.create(path, schema), then overwrite(rows)",
    "current_snapshot": "history()",
    "data_files": "files()",
    "deduplicate": "dedupe()",
    "detail": "describe()",
    "drop_duplicates": "dedupe()",
    "drop_partitions": "delete_partitions(partitions)",
    "expire_snapshots": "clean()",
    "fetch_pandas": "to_pandas()",
    "file_uris": "files()",
    "diff": "changes(since, images=True)",
    **dict.fromkeys(("filter", "where"), "read(where=...)"),
    "forName": "lakeformat.open(path); tables are named by path",
    "forPath": "lakeformat.open(path)",
    "generate": "files()",
    **dict.fromkeys(("get", "find", "lookup", "query"), "read(where=...)"),
    "get_add_actions": "files()",
    "get_file_slices": "files()",
    "get_schema": "schema",
    "get_timeline": "history()",
    "head": "to_arrow(limit=10)",
    "inspect": "files() and history()",
    **dict.fromkeys(("describe_detail", "detail", "info", "stats"), "describe()"),
    **dict.fromkeys(("dtypes", "types"), "schema.types"),
    "isDeltaTable": "lakeformat.exists(path)",
    "is_deltatable": "lakeformat.exists(path)",
    **dict.fromkeys(("key", "keys", "primary_key", "record_key"), "config.record_fields"),
    **dict.fromkeys(("lazy", "scan_delta", "scan_polars"), "to_polars(lazy=True)"),
    **dict.fromkeys(("iterrows", "itertuples", "rows", "to_pylist"), "to_arrow().to_pylist()"),
    "limit": "to_arrow(limit=10)",
    "load_as_version": "to_arrow(as_of=...)",
    "load_cdf": "changes(since, images=True)",
    "load_with_datetime": "to_arrow(as_of=...)",
    "merge_into": "merge(rows)",
    "metadata": "config",
    "num_rows": "count()",
    "optimize": "cluster(by=...)",
    "overwrite_partitions": "insert_overwrite(rows)",
    **dict.fromkeys(("partition_by", "partition_columns"), "config.partition_fields"),
    "partitions": "files()",
    **dict.fromkeys(("properties", "protocol"), "config"),
    "read_incremental_records": "changes(since)",
    "read_snapshot": "to_arrow()",
    "replace": "overwrite(rows)",
    "scan": "read(columns, where=...)",
    "select": "read(columns)",
    "shape": "count()",
    "snapshots": "history()",
    "sql": 'lakeformat.sql("select ... from t", t=table)',
    **dict.fromkeys(("undo", "revert"), "rollback()"),
    "table_name": "name",
    "table_uri": "uri",
    "to_pyarrow": "to_arrow()",
    "to_pyarrow_table": "to_arrow()",
    "toDF": "to_pandas(), or lakeformat.spark.read(spark, path)",
    "to_table": "to_arrow()",
    "upgradeTableProtocol": "upgrade(to)",
    "vacuum": "clean()",
    **dict.fromkeys(("current_version", "get_latest_version", "latest_version", "version"), "history()[0].version"),
    "z_order": 'cluster(by=..., curve="z-order")',
    "zorder": 'cluster(by=..., curve="z-order")',
}
#: Maps methods of other libraries to those of `LakehouseTable`, the table class for Spark. Overrides `_OWN_CALLS`.
_UNDER_SPARK: Final[Mapping[str, str]] = {
    "collect": "read().collect()",
    "createIfNotExists": "LakehouseTable.create(spark, path, schema)",
    "createOrReplace": "LakehouseTable.create(spark, path, schema), then overwrite(rows)",
    "fetch_pandas": "read().toPandas()",
    "forName": "LakehouseTable.forPath(spark, path); tables are named by path",
    "head": "read(limit=10)",
    **dict.fromkeys(("lazy", "scan_delta", "scan_polars"), "lakeformat.open(location).to_polars(lazy=True)"),
    **dict.fromkeys(("iterrows", "itertuples", "rows", "to_pylist"), "read().collect()"),
    "isDeltaTable": "exists()",
    "is_deltatable": "exists()",
    "limit": "read(limit=10)",
    "load_as_version": "read(as_of=...)",
    "load_with_datetime": "read(as_of=...)",
    "read_snapshot": "read()",
    "toDF": "read()",
    "to_arrow": "read().toArrow()",
    "to_batches": "lakeformat.open(location).to_batches()",
    "to_duckdb": "lakeformat.open(location).to_duckdb()",
    "to_pandas": "read().toPandas()",
    "to_polars": "lakeformat.open(location).to_polars()",
    "to_pyarrow": "lakeformat.open(location).to_arrow()",
    "to_pyarrow_dataset": "lakeformat.open(location).to_pyarrow_dataset()",
    "to_pyarrow_table": "lakeformat.open(location).to_arrow()",
    "to_table": "lakeformat.open(location).to_arrow()",
}
_PER_COLUMN: Final = "{clause}(columns), which takes names, or {{column: value}}"
_NO_SOURCE: Final = "a merge does not look at rows that the source does not have; update or delete them by where=..."
#: Maps clauses of merges in delta-rs and Delta's Python, in lower case without underscores, to those of lakeformat.
_CLAUSES: Final[Mapping[str, str]] = {
    "whenmatched": "when_matched_update() and when_matched_delete()",
    "whenmatchedupdate": _PER_COLUMN.format(clause="when_matched_update"),
    "whenmatchedupdateall": "when_matched_update(), which takes every column",
    "whenmatcheddelete": "when_matched_delete(where)",
    "whennotmatched": "when_not_matched_insert()",
    "whennotmatchedinsert": "when_not_matched_insert(where), which takes every column",
    "whennotmatchedinsertall": "when_not_matched_insert()",
    "whennotmatchedbysource": _NO_SOURCE,
    "whennotmatchedbysourceupdate": _NO_SOURCE,
    "whennotmatchedbysourceupdateall": _NO_SOURCE,
    "whennotmatchedbysourcedelete": _NO_SOURCE,
    "withschemaevolution": "an upsert of rows that have the new columns",
    "commit": "execute()",
}


#: Maps commands of other programs to lakeformat's.
_COMMANDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("append", "add"), "insert"),
    **dict.fromkeys(("cat", "head", "rows", "select", "show-rows", "scan", "tail"), "read"),
    **dict.fromkeys(("cdc", "diff"), "changes"),
    **dict.fromkeys(("expire-snapshots", "vacuum"), "clean"),
    **dict.fromkeys(("info", "detail", "stats"), "describe"),
    **dict.fromkeys(("log", "snapshots", "timeline"), "history"),
    **dict.fromkeys(("ls", "list"), "files"),
    **dict.fromkeys(("optimize", "zorder", "z-order", "sort"), "cluster --by COLUMNS"),
    **dict.fromkeys(("undo", "revert"), "rollback, or restore"),
    **dict.fromkeys(("query", "run"), "sql"),
    **dict.fromkeys(("load", "import", "write"), "insert --bulk"),
    **dict.fromkeys(("export", "dump"), "read --output FILE"),
    **dict.fromkeys(("adopt", "bootstrap"), "convert"),
    **dict.fromkeys(("fsck", "validate", "verify"), "check"),
    **dict.fromkeys(("update", "merge"), "upsert, or sql"),
}


#: Maps options of other programs' commands to lakeformat's.
_FLAGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("id", "key", "keys", "on", "primary-key", "recordkey"), "record-key"),
    **dict.fromkeys(("partition", "partition-column", "partition-key", "partitioned-by"), "partition-by"),
    **dict.fromkeys(("filter", "predicate"), "where"),
    **dict.fromkeys(("select", "fields"), "columns"),
    **dict.fromkeys(("version", "timestamp", "instant", "at"), "as-of"),
    **dict.fromkeys(("n", "head", "rows", "max-rows"), "limit"),
    **dict.fromkeys(("precombine", "order-by"), "ordering"),
    **dict.fromkeys(("out", "to"), "output"),
}


def own_command(name: str) -> str | None:
    """Return which of lakeformat's commands does what one of another program does; None if none is at hand.

    >>> own_command("vacuum")
    'here it is called clean'
    """
    asked = name.lower().replace("_", "-")
    if asked in {"drop", "rm", "remove"}:
        return "a table is its folder: delete the folder"
    return f"here it is called {_COMMANDS[asked]}" if asked in _COMMANDS else None


def own_flag(name: str, known: Collection[str]) -> str | None:
    """Return which option of a command does what one of another program does; None if none is known.

    >>> own_flag("--key", ["--like", "--record-key"])
    'here it is called --record-key'
    """
    own_name = f"--{_FLAGS.get(name.lower().lstrip('-').replace('_', '-'))}"
    return f"here it is called {own_name}" if own_name in known else None


def unknown_name(kind: type, name: str) -> str:
    """Return the error message for an unknown attribute of a table class, with lakeformat's equivalent.

    >>> unknown_name(type("Table", (), {"clean": None}), "vacuum")
    "Table has no 'vacuum'; here it is called clean()"
    """
    message = f"{kind.__name__} has no {name!r}"
    names = [name for name in dir(kind) if not name.startswith("_")]
    if name in _INSTEAD:
        return f"{message}; {_INSTEAD[name]}"
    if name.lower().startswith("when") and (clause := _find_clause(name)):
        return f"{message}; {clause}" if clause is _NO_SOURCE else f"{message}; write merge(rows), and then {clause}"
    own_name = (_UNDER_SPARK.get(name) if "forPath" in names else None) or _OWN_CALLS.get(name)
    return message + (f"; here it is called {own_name}" if own_name else nearest(name, names))


def unknown_clause(name: str, known: list[str]) -> str:
    """Return the error message for an unknown clause of a merge, with lakeformat's equivalent."""
    message = f"Merge has no {name!r}"
    own_name = _find_clause(name)
    if own_name is _NO_SOURCE:
        return f"{message}; {own_name}"
    return message + (f"; here it is called {own_name}" if own_name else nearest(name, known))


def _find_clause(name: str) -> str | None:
    return _CLAUSES.get(name.lower().replace("_", ""))


@public
class _Hints(type):
    """A metaclass that raises the error of `unknown_name` for attributes of the class, such as ``Table.forName``."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise AttributeError(unknown_name(cls, name))


@public
class ForeignNames(metaclass=_Hints):
    """A base class whose errors for unknown attributes and arguments name lakeformat's equivalent.

    `__getattr__` is hidden from type checkers, so that they report unknown attributes.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        refuse_others(cls)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(unknown_name(type(self), name))
