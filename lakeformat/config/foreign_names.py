"""Keyword arguments that other libraries have: each unknown one is refused, and ours is named.

What other libraries call the verbs and arguments of a table: each unknown name is refused, and ours is named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from lakeformat.errors import InvalidOptionError, nearest

__all__ = [
    "COLUMNS_STAY",
    "ForeignNames",
    "check_arguments",
    "check_write_arguments",
    "refuse_others",
    "refuses_others",
    "unknown_clause",
    "unknown_name",
]

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

#: Of delta-rs, pyiceberg, polars and pandas -> ours, where a method has it.
_OUR_ARGUMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("condition", "expr", "filter", "filters", "predicate", "query", "row_filter"), "where"),
    **dict.fromkeys(("fields", "projection", "select", "selected_fields", "usecols"), "columns"),
    **dict.fromkeys(("datetime", "instant", "snapshot_id", "timestamp", "version"), "as_of"),
    **dict.fromkeys(("head", "n", "n_rows", "nrows", "rows"), "limit"),
    **dict.fromkeys(("commit_properties", "custom_metadata", "metadata", "snapshot_properties"), "extra_metadata"),
}
#: Arguments of other libraries' writes that none of ours has.
_SAID: Final[Mapping[str, str]] = {
    "predicate": "a merge matches rows by the table's record key; conditions are where=... of its clauses",
    "source_alias": 'leave it out: conditions name the source\'s columns "source.x"',
    "target_alias": 'leave it out: conditions name the table\'s columns "target.x"',
    "on": "rows match by the table's record key; leave it out",
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
    said: Mapping[str, str] | None = None,
) -> None:
    """Refuse keyword arguments that a method does not have.

    Args:
        otherwise: where such a name may belong instead, behind a semicolon.
        verb: the method's name, for the message.
        said: what to say of some names that are not arguments.

    Raises:
        InvalidOptionError: names the first that is unknown, and the one that was meant.
    """
    for name in given:
        if name not in known:
            ours = _OUR_ARGUMENTS.get(name.lower())
            hint = f"; did you mean {ours!r}?" if ours in known else nearest(name, known)
            there = f"; there are {', '.join(known)}" if known else ""
            cure = f"; {said[name.lower()]}" if said and name.lower() in said else hint or there + otherwise
            raise InvalidOptionError(f"unknown argument {name!r}{f' of {verb}()' if verb else ''}{cure}")


def check_write_arguments(given: Iterable[str], known: Collection[str], verb: str, otherwise: str) -> None:
    """Refuse arguments of a write as `check_arguments` does, with what to do for those of other libraries."""
    said = {name: text for name, text in _SAID.items() if not (name == "predicate" and "where" in known)}
    check_arguments(given, known, otherwise, verb=verb, said=said)


def refuses_others(otherwise: str) -> Callable[[Callable[_Given, _Result]], Callable[_Given, _Result]]:
    """Make a decorator by which a method refuses unknown arguments in our words, and not in Python's.

    Args:
        otherwise: where such a name may belong instead, behind a semicolon.
    """

    def decorated(method: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        known = tuple(inspect.signature(method).parameters)[1:]

        @wraps(method)
        def checked(*given: _Given.args, **named: _Given.kwargs) -> _Result:
            check_write_arguments(named, known, method.__name__, otherwise)
            return method(*given, **named)

        return checked

    return decorated


def refuse_others(kind: type) -> None:
    """Make every public method of a class, inherited ones too, refuse unknown keyword arguments in our words.

    Methods that take any keyword argument check them on their own, and stay as they are.
    """
    for name in dir(kind):
        method = inspect.getattr_static(kind, name)
        if name.startswith("_") or not isinstance(method, FunctionType) or hasattr(method, "__wrapped__"):
            continue
        given = inspect.signature(method).parameters.values()
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in given):
            setattr(kind, name, _checking(method, tuple(each.name for each in given)[1:]))


def _checking(method: Callable[..., Any], known: Collection[str]) -> Callable[..., Any]:
    @wraps(method)
    def checked(*given: Any, **named: Any) -> Any:
        if named:
            check_arguments(named, known, _WHERE_OPTIONS_GO, verb=method.__name__)
        return method(*given, **named)

    return checked


COLUMNS_STAY: Final = "columns cannot be renamed, dropped or moved; write the rows into a new table"
_ADD: Final = 'write rows that have the new column, or lakeformat.sql("alter table t add columns (name type)", t=table)'
_BY_INSTANT: Final = "write restore(to) with an instant time of history()"

#: Names of other libraries for which a table has no verb -> what to do.
_INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(("add_column", "add_columns", "alter", "update_schema"), _ADD),
    **dict.fromkeys(
        ("drop_column", "drop_columns", "rename_column", "rename_columns", "reorder_columns"), COLUMNS_STAY
    ),
    **dict.fromkeys(("restoreToTimestamp", "restoreToVersion"), _BY_INSTANT),
    "alias": 'conditions of a merge name the two sides "source.x" and "target.x"; leave the alias out',
    "rename": "move the table's folder, and open it where it is then",
    "toDF": "write to_arrow(), or lakeformat.spark.read(spark, path)",
    "updateExpr": 'write lakeformat.sql("update t set ...", t=table), or update(set, where)',
}

#: Verbs of delta-rs, pyiceberg, hudi-rs, polars, pandas and Delta's Python -> how the same is said here.
_OUR_CALLS: Final[Mapping[str, str]] = {
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
    "filter": "scan(where=...)",
    "forName": "lakeformat.open(path); tables are named by path",
    "forPath": "lakeformat.open(path)",
    "generate": "files()",
    "get_add_actions": "files()",
    "get_file_slices": "files()",
    "get_schema": "schema",
    "get_timeline": "history()",
    "head": "to_arrow(limit=10)",
    "inspect": "files() and history()",
    "isDeltaTable": "lakeformat.exists(path)",
    "is_deltatable": "lakeformat.exists(path)",
    **dict.fromkeys(("key", "keys", "primary_key", "record_key"), "config.record_fields"),
    "limit": "to_arrow(limit=10)",
    "load_as_version": "to_arrow(as_of=...)",
    "load_cdf": "changes(since, images=True)",
    "load_with_datetime": "to_arrow(as_of=...)",
    "merge_into": "merge(rows)",
    "metadata": "config",
    "name": "config.name",
    "num_rows": "count()",
    "optimize": "cluster(by=...)",
    "overwrite_partitions": "insert_overwrite(rows)",
    **dict.fromkeys(("partition_by", "partition_columns"), "config.partition_fields"),
    "partitions": "files()",
    "path": "location",
    "protocol": "config",
    "read": "to_arrow()",
    "read_incremental_records": "changes(since)",
    "read_snapshot": "to_arrow()",
    "replace": "overwrite(rows)",
    "select": "scan(columns)",
    "shape": "count()",
    "snapshots": "history()",
    "table_uri": "location",
    "to_pyarrow": "to_arrow()",
    "to_pyarrow_dataset": "scan(), which anything that takes Arrow streams takes",
    "to_pyarrow_table": "to_arrow()",
    "to_table": "to_arrow()",
    "upgradeTableProtocol": "upgrade(to)",
    "uri": "location",
    "vacuum": "clean()",
    "version": "history()",
    "z_order": 'cluster(by=..., curve="z-order")',
    "zorder": 'cluster(by=..., curve="z-order")',
}
#: What `LakehouseTable` has for names whose answer above it does not have, or has otherwise.
_UNDER_SPARK: Final[Mapping[str, str]] = {
    "collect": "toDF().collect()",
    "createIfNotExists": "LakehouseTable.create(spark, path, schema)",
    "createOrReplace": "LakehouseTable.create(spark, path, schema), then overwrite(rows)",
    "fetch_pandas": "toDF().toPandas()",
    "filter": "toDF(where=...)",
    "forName": "LakehouseTable.forPath(spark, path); tables are named by path",
    "head": "toDF().limit(10)",
    "isDeltaTable": "exists()",
    "is_deltatable": "exists()",
    "limit": "toDF().limit(10)",
    "load_as_version": "toDF(as_of=...)",
    "load_cdf": "lakeformat.open(location).changes(since, images=True)",
    "load_with_datetime": "toDF(as_of=...)",
    "read_incremental_records": "lakeformat.open(location).changes(since)",
    "read_snapshot": "toDF()",
    "select": "toDF(columns)",
    "scan": "toDF(columns, where)",
    "to_arrow": "toDF(), or lakeformat.open(location).to_arrow()",
    "to_pandas": "toDF().toPandas()",
    "to_pyarrow": "lakeformat.open(location).to_arrow()",
    "to_pyarrow_dataset": "lakeformat.open(location).scan()",
    "to_pyarrow_table": "lakeformat.open(location).to_arrow()",
    "to_table": "lakeformat.open(location).to_arrow()",
}
_PER_COLUMN: Final = "{clause}(columns), which takes names, or {{column: value}}"
_NO_SOURCE: Final = "a merge does not look at rows that the source does not have; update or delete them by where=..."
#: Of the merges of delta-rs and of Delta's Python, in small letters and without underscores.
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


def unknown_name(kind: type, name: str) -> str:
    """Say that a table has no such attribute, and what it has instead.

    >>> unknown_name(type("Table", (), {"clean": None}), "vacuum")
    "Table has no 'vacuum'; here it is called clean()"
    """
    said = f"{kind.__name__} has no {name!r}"
    known = [each for each in dir(kind) if not each.startswith("_")]
    if name in _INSTEAD:
        return f"{said}; {_INSTEAD[name]}"
    if name.lower().startswith("when") and (clause := _clause(name)):
        return f"{said}; {clause}" if clause is _NO_SOURCE else f"{said}; write merge(rows), and then {clause}"
    ours = (_UNDER_SPARK.get(name) if "toDF" in known else None) or _OUR_CALLS.get(name)
    return said + (f"; here it is called {ours}" if ours else nearest(name, known))


def unknown_clause(name: str, known: list[str]) -> str:
    """Say that a merge has no such clause, and what it has instead."""
    said = f"Merge has no {name!r}"
    ours = _clause(name)
    if ours is _NO_SOURCE:
        return f"{said}; {ours}"
    return said + (f"; here it is called {ours}" if ours else nearest(name, known))


def _clause(name: str) -> str | None:
    return _CLAUSES.get(name.lower().replace("_", ""))


class _Hints(type):
    """The same answers for names of the class: ``Table.forName``."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise AttributeError(unknown_name(cls, name))


class ForeignNames(metaclass=_Hints):
    """Answers attributes and arguments that a table does not have. To type checkers they stay unknown."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        refuse_others(cls)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(unknown_name(type(self), name))
