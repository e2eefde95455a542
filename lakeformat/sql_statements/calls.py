"""Procedures of ``call``: Hudi's names for what a table's own verbs do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import InvalidInputError, UnsupportedTableError, nearest
from lakeformat.sql_statements.parse import Call

__all__ = ["called_table", "run_call", "told"]

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
