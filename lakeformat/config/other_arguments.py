"""Keyword arguments that other libraries have: each unknown one is refused, and ours is named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, Final, ParamSpec, TypeVar

from lakeformat.errors import InvalidOptionError, nearest

__all__ = ["check_arguments", "check_write_arguments", "refuse_others", "refuses_others"]

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
