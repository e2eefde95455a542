"""Pre-commit validators: checks of the table as it will be after a write (Hudi: ``SparkPreCommitValidator``).

They run in ``commit()`` when all files are written and nothing is published yet. Hudi's three SQL validators query the
partitions that a write touches; ours query the whole table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from lakeformat.config.callables import callable_name, import_callable
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, ValidationFailedError, nearest
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.predicate.select import Select, parse_select
from lakeformat.read.aggregates import answer, as_text, bind_select, same
from lakeformat.read.view import TableView
from lakeformat.table_state.live import ListedFiles, ListedSlices
from lakeformat.table_state.snapshot import Snapshot

__all__ = [
    "ProposedWrite",
    "PythonValidator",
    "SqlValidator",
    "Validator",
    "check_validators",
    "load_callable",
    "proposed_snapshot",
    "run_validators",
    "validators_of",
]

_LOG: Final = logging.getLogger("lakeformat.write")
_CLASSES: Final = "hoodie.precommit.validators"
_PACKAGE: Final = "org.apache.hudi.client.validator."
#: Hudi's class -> the option that holds its queries, and the kind of its check.
_SQL: Final[Mapping[str, tuple[str, str]]] = {
    "SqlQuerySingleResultPreCommitValidator": (f"{_CLASSES}.single.value.sql.queries", "result"),
    "SqlQueryEqualityPreCommitValidator": (f"{_CLASSES}.equality.sql.queries", "equal"),
    "SqlQueryInequalityPreCommitValidator": (f"{_CLASSES}.inequality.sql.queries", "unequal"),
}


@dataclass(frozen=True)
class ProposedWrite:
    """The input of a validator.

    Attributes:
        operation: ``upsert``, ``insert`` ...
        before: view of the table as it was when the write took its lock.
        after: view of the table as it will be.
        stats: statistics of the files written, with their counts.
    """

    operation: str
    before: TableView
    after: TableView
    stats: tuple[WriteStat, ...]


@dataclass(frozen=True)
class SqlValidator:
    """One query of one of Hudi's SQL validators.

    Attributes:
        kind: Hudi's class, without its package.
        expected: the required value; None if the answers before and after are compared.
    """

    kind: str
    select: Select
    expected: str | None

    @property
    def name(self) -> str:
        """Return the class and the query."""
        return f"{self.kind} ({self.select.text})"

    def check(self, write: ProposedWrite) -> None:
        """Raise `ValidationFailedError` if the write must not happen."""
        select = bind_select(self.select, write.after.schema)
        after = answer(select, write.after)
        if self.expected is not None:
            if not same(self.expected, after[0]):
                raise _refusal(self.name, f"found {as_text(after[0])}, wanted {self.expected}")
            return
        before = answer(select, write.before.seen_as(write.after.schema))
        wants_equal = _SQL[self.kind][1] == "equal"
        if (_texts(before) == _texts(after)) is not wants_equal:
            found = f"{', '.join(_texts(before))} before and {', '.join(_texts(after))} after"
            raise _refusal(self.name, f"found {found}, wanted {'equal' if wants_equal else 'different'} answers")


@dataclass(frozen=True)
class PythonValidator:
    """A function of the user, which raises or returns False to refuse the write."""

    function: Callable[[ProposedWrite], Any]

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return callable_name(self.function)

    def check(self, write: ProposedWrite) -> None:
        """Raise `ValidationFailedError` if the write must not happen."""
        try:
            verdict = self.function(write)
        except Exception as error:
            raise _refusal(self.name, f"{type(error).__name__}: {error}") from error
        if verdict is False:
            raise _refusal(self.name, "it returned False")


Validator = SqlValidator | PythonValidator


def _refusal(name: str, found: str) -> ValidationFailedError:
    return ValidationFailedError(f"validator {name} refused the write: {found}; nothing was published")


def _texts(values: Sequence[Any]) -> list[str]:
    return [as_text(value) for value in values]


def load_callable(place: str, *, option: str) -> Callable[..., Any]:
    """The function at ``package.module:function``.

    Raises:
        InvalidOptionError: there is none; names the option and the reason.
    """
    try:
        return import_callable(place)
    except (ImportError, TypeError) as error:
        raise InvalidOptionError(
            f"option {option}={place!r} names no function ({error}); write package.module:function"
        ) from error


def validators_of(options: Options, functions: Sequence[Callable[[ProposedWrite], Any]] = ()) -> tuple[Validator, ...]:
    """Parse the validators that the options and the caller name.

    Raises:
        InvalidOptionError: a validator class is not known, or a validator and its queries are not given together.
        InvalidInputError: a query is outside the supported subset of SQL.
    """
    names = [name.removeprefix(_PACKAGE) for name in options[_CLASSES]]
    for name in names:
        if name not in _SQL:
            raise InvalidOptionError(
                f"option {_CLASSES}={name!r} is not known{nearest(name, _SQL)}; Python functions go into "
                "lakeformat.transaction.validators"
            )
    found: list[Validator] = []
    for name, (option, kind) in _SQL.items():
        if (name in names) != bool(options[option]):
            raise InvalidOptionError(f"{option} and {_CLASSES}={_PACKAGE}{name} need each other; give both or none")
        found += [_sql(name, text, option, single=kind == "result") for text in _queries(options[option])]
    option = "lakeformat.transaction.validators"
    places = [load_callable(place, option=option) for place in options[option]]
    return (*found, *(PythonValidator(function) for function in (*places, *functions)))


def _queries(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(";") if part.strip()]


def _sql(name: str, text: str, option: str, *, single: bool) -> SqlValidator:
    query, mark, expected = text.rpartition("#") if single else (text, "", "")
    if single and not mark:
        raise InvalidOptionError(f"option {option}: {text!r} has no expected result; write query#result")
    select = parse_select(query.strip())
    if single and len(select.aggregates) != 1:
        raise InvalidOptionError(f"option {option}: {query!r} gives {len(select.aggregates)} values; ask for one")
    return SqlValidator(name, select, expected if single else None)


def check_validators(validators: Sequence[Validator], schema: pa.Schema) -> None:
    """Refuse queries that do not fit the table's columns. Call it before anything is written.

    Raises:
        InvalidInputError: the message names the query and the column.
    """
    for validator in validators:
        if isinstance(validator, SqlValidator):
            bind_select(validator.select, schema)


def proposed_snapshot(
    snapshot: Snapshot,
    schema: pa.Schema,
    stats: Sequence[WriteStat],
    replaced: Mapping[str, Sequence[str]],
    instant_time: str,
) -> Snapshot:
    """Return the table as it will be once these files of a pending instant are published."""
    hidden = {FileGroupId(path, file_id) for path, ids in replaced.items() for file_id in ids}
    slices = {piece.group: piece for piece in snapshot.each_slice() if piece.group not in hidden}
    for stat in stats:
        group, log = FileGroupId(stat.partition_path, stat.file_id), LogFileName.match(stat.path.rpartition("/")[2])
        if log is None:
            slices[group] = FileSlice(group, instant_time, stat.base_file)
        else:
            piece = slices.get(group) or FileSlice(group, instant_time, None)
            slices[group] = replace(piece, logs=(*piece.logs, LogFile(stat.partition_path, log, stat.size_bytes)))
    after = tuple(slices[group] for group in sorted(slices))
    has_logs = any(piece.logs for piece in after)
    live = ListedSlices(after) if has_logs else ListedFiles(tuple(piece.base for piece in after if piece.base))
    timeline = snapshot.timeline.with_completed(instant_time)
    return Snapshot(snapshot.config, timeline, max(snapshot.instant_time or "", instant_time), schema, live)


def run_validators(validators: Sequence[Validator], write: ProposedWrite) -> None:
    """Run the validators in order.

    Raises:
        ValidationFailedError: a validator refuses; the message names it and its finding. Later ones do not run.
    """
    for validator in validators:
        validator.check(write)
        _LOG.debug("validator %s passed", validator.name)
