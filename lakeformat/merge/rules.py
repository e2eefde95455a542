"""The merge rules: `MergeRule` of a write, `ReadRule` of a read, and `Merger`, the user's Python function.

The rule of a write says how a stored row and an incoming row with the same key become one row. The rule of a read says
how the log files and the base file of a slice become rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.config.option import import_callable
from lakeformat.errors import InvalidInputError, InvalidOptionError, UnsupportedTableError
from lakeformat.merge.fields import fill_unset, known_values
from lakeformat.merge.order import flag_deleted_rows, ordering_columns
from lakeformat.model.merge_settings import MergeSettings, PartialUpdate, RecordMergeMode
from lakeformat.model.record import IS_DELETED, OPERATION, RECORD_KEY

__all__ = ["MergeFunction", "MergeRule", "Merger", "ReadRule", "make_read_rule"]


@dataclass(frozen=True, slots=True)
class ReadRule:
    """The rule that decides which version of a record is read. A picklable value, the same in every task.

    Attributes:
        ordering: the ordering fields; the first one that differs decides. The greater value wins; on a tie, the version
            written later (event time). If empty, the version written later wins (commit time).
        partial: which values of a version count as not set, so that the older version's values are used; None if all
            values are set.
        unavailable: the text that marks a value as not set under ``FILL_UNAVAILABLE``.
        delete_field: name of a column; a row whose value in it is ``delete_marker`` is a delete. "" for none.
        delete_marker: the value that makes a row a delete, as text.
        by_payload: whether rows are merged as the table's payload class does, before version 9: a delete is always
            unconditional.
        ignores_case: whether ``delete_marker`` counts in capitals and in small letters.
        is_sequence: whether the ordering field holds texts ``file.position``, which are compared as two numbers.
    """

    ordering: tuple[str, ...] = ()
    partial: PartialUpdate | None = None
    unavailable: str = ""
    delete_field: str = ""
    delete_marker: str = ""
    by_payload: bool = False
    ignores_case: bool = False
    is_sequence: bool = False

    @property
    def takes_last_meta(self) -> bool:
        """Tell whether the meta columns are always those of the version written last (``PartialUpdateAvroPayload``)."""
        return self.by_payload and self.partial is PartialUpdate.IGNORE_DEFAULTS

    def for_columns(self, names: Collection[str]) -> ReadRule:
        """Return the rule for a table with these columns: ordering fields that the table lacks are dropped."""
        return replace(self, ordering=tuple(name for name in self.ordering if name.partition(".")[0] in names))

    def base_columns(self, *, by_position: bool = False) -> tuple[str, ...]:
        """Return the names of the base files' columns that the merge needs; for a struct's field, the struct.

        Args:
            by_position: whether log rows are matched to base rows by row number; then the key column is not needed.
        """
        return (
            *(() if by_position else (RECORD_KEY,)),
            *dict.fromkeys(name.partition(".")[0] for name in self.ordering),
        )

    def log_columns(self) -> tuple[str, ...]:
        """Return the names of the log blocks' columns that the merge needs, if they exist, except the record key."""
        return tuple(dict.fromkeys((*self.base_columns(by_position=True), *self.deleting_columns)))

    @property
    def deleting_columns(self) -> tuple[str, ...]:
        """Return the names of the columns whose values can make rows of a log block deletes."""
        return (IS_DELETED, OPERATION, *((self.delete_field,) if self.delete_field else ()))


def make_read_rule(settings: MergeSettings) -> ReadRule:
    """Return the read rule of a table that stores these settings.

    Raises:
        UnsupportedTableError: the table merges rows with its own code or in an unknown way.
    """
    if settings.mode is RecordMergeMode.CUSTOM:
        raise _unknown_merge(settings.custom)
    return ReadRule(
        ordering=settings.ordering_fields if settings.mode is RecordMergeMode.EVENT_TIME else (),
        partial=settings.partial_update,
        unavailable=settings.unavailable_value if settings.partial_update is PartialUpdate.FILL_UNAVAILABLE else "",
        delete_field=settings.delete_field,
        delete_marker=settings.delete_marker,
        by_payload=settings.by_payload,
        ignores_case=settings.ignores_case,
        is_sequence=settings.is_sequence,
    )


def _unknown_merge(setting: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the table merges its log files in a way that is not known here ({setting}); read its base files, with "
        "hoodie.datasource.query.type=read_optimized, or all of it with Apache Hudi"
    )


#: A function that gets the stored rows and the incoming rows and returns the merged rows. All three tables have the
#: same columns and the same number of rows, and row ``i`` of each has the same key.
MergeFunction = Callable[[pa.Table, pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class Merger:
    """A user's merge function.

    The function gets the table's columns without Hudi's meta columns and returns the same number of rows with the same
    columns and types. Rows in which it sets ``_hoodie_is_deleted`` to true are deleted; it may add this boolean column
    if the table has none. It is called once per batch of stored rows with incoming rows, from several threads at once.
    It must not change the record key.

    Attributes:
        target: the function, or ``package.module:function``, which is imported when it is used.
        fixed_columns: names of columns, or of fields of structs, whose values the function must not change: those of
            the record key and the partition.
    """

    target: MergeFunction | str
    fixed_columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the function's name, for messages."""
        if isinstance(self.target, str):
            return self.target
        name = getattr(self.target, "__qualname__", None) or repr(self.target)
        return f"{getattr(self.target, '__module__', '')}:{name}".lstrip(":")

    def function(self) -> MergeFunction:
        """Return the function. If it is given by name, import it.

        Raises:
            InvalidOptionError: there is no such module or function, or it cannot be called.
        """
        try:
            return import_callable(self.target)
        except ImportError as error:
            raise InvalidOptionError(
                f"the merger {self} cannot be imported ({error}); give package.module:function of a module that every "
                "Python of this job can import"
            ) from error
        except TypeError as error:
            raise InvalidOptionError(f"the merger {self} is {error}, not a function; give a function") from error

    def merge_rows(self, stored: pa.Table, incoming: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Call the function. Return its rows in ``incoming``'s schema, and a flag per row: whether it is deleted.

        Raises:
            InvalidInputError: the function failed, or its result has a wrong number of rows, other columns, or changed
                keys; the message names the function.
        """
        function = self.function()
        try:
            answer = function(stored, incoming)
        except Exception as error:
            raise InvalidInputError(
                f"the merger {self} raised {type(error).__name__}: {error}; nothing was written"
            ) from error
        if not isinstance(answer, pa.Table):
            raise InvalidInputError(f"the merger {self} returned {type(answer).__name__}; return a pyarrow Table")
        if answer.num_rows != incoming.num_rows:
            raise InvalidInputError(
                f"the merger {self} returned {answer.num_rows} rows for {incoming.num_rows}; return one for each, in "
                f"order, and set {IS_DELETED} to true in those to delete"
            )
        deleted = self._find_deletes(answer)
        if IS_DELETED not in incoming.schema.names and IS_DELETED in answer.schema.names:
            answer = answer.drop_columns([IS_DELETED])
        self._check_columns(answer, incoming.schema, deleted)
        for name in self.fixed_columns:
            unchanged = pc.or_(_is_same(answer, stored, name), _is_same(answer, incoming, name))
            if not pc.all(unchanged, min_count=0).as_py():
                raise InvalidInputError(
                    f"the merger {self} changed {name!r}, which makes the row's key; leave it as it is"
                )
        return pa.Table.from_arrays(answer.columns, schema=incoming.schema), deleted

    def _find_deletes(self, answer: pa.Table) -> npt.NDArray[np.bool_]:
        if IS_DELETED not in answer.schema.names:
            return np.zeros(answer.num_rows, bool)
        flags = answer.column(IS_DELETED)
        if kind_of(flags.type) is not Kind.BOOLEAN:
            raise InvalidInputError(f"the merger {self} returned {IS_DELETED} as {flags.type}; make it boolean")
        return flag_deleted_rows(flags, answer.num_rows)

    def _check_columns(self, answer: pa.Table, schema: pa.Schema, deleted: npt.NDArray[np.bool_]) -> None:
        given = [(field.name, field.type) for field in answer.schema]
        expected = [(field.name, field.type) for field in schema]
        if given != expected:
            both = set(given) ^ set(expected)
            odd = [f"{name} {kind}" for name, kind in dict.fromkeys([*given, *expected]) if (name, kind) in both]
            raise InvalidInputError(
                f"the merger {self} returned other columns than it was given ({', '.join(odd) or 'in another order'}); "
                "return incoming's schema"
            )
        for field in schema:
            column = answer.column(field.name)
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise InvalidInputError(
                    f"the merger {self} returned damaged values in {field.name!r} ({error})"
                ) from None
            if not field.nullable and column.filter(pa.array(~deleted)).null_count:
                raise InvalidInputError(f"the merger {self} returned nulls in {field.name!r}, which may not be null")


def _is_same(left: pa.Table, right: pa.Table, name: str) -> pa.ChunkedArray:
    """Tell row by row whether a column or a struct's field (``a.b``) is equal; two nulls are equal."""
    first, other = (_values(table, name) for table in (left, right))
    both_null = pc.and_(pc.is_null(first), pc.is_null(other))
    return pc.or_(pc.fill_null(pc.equal(first, other), False), both_null)


def _values(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name in table.schema.names:
        return table.column(name)
    top, *inner = name.split(".")
    return pc.struct_field(table.column(top), inner)


@dataclass(frozen=True, slots=True)
class MergeRule:
    """The rule of a write for two rows with the same key. A picklable value, the same in every task.

    ============================================  ====================================================
    rule                                          result for a stored and an incoming row with one key
    ============================================  ====================================================
    ``MergeRule()``                               the incoming row replaces the stored one
    ``event_time=True``                           the greater ordering value wins; on a tie, the incoming row
    ``partial=IGNORE_DEFAULTS``                   the newer row, its nulls filled from the older row
    ``partial=FILL_UNAVAILABLE``                  the newer row, its texts ``unavailable`` filled from the older row
    ``columns=(...)``                             the stored row with these columns of the incoming row
    ``merger=...``                                the result of the user's function
    ============================================  ====================================================

    Attributes:
        ordering: names of the ordering columns, or of fields of structs (``a.b``); the first that differs decides.
            Among rows of one input batch the greatest value wins; on a tie the later row. If empty, the later row wins.
        event_time: whether the ordering columns also decide between a stored and an incoming row.
        partial: which values of the newer row are filled from the older row, as in Hudi's partial payloads; None if
            none. Under ``IGNORE_DEFAULTS`` an incoming delete always deletes, whatever its ordering value.
        folds: whether rows of one input batch with one key also fill each other's values.
        columns: names of the columns that an incoming row sets in a stored row, nulls included; None for all.
        merger: the user's function, which replaces the rules above. They still apply to duplicates within the input
            batch and to incoming deletes.
        unavailable: the text that marks a value as not set under ``FILL_UNAVAILABLE``.
        is_sequence: whether the ordering column holds texts ``file.position``, which are compared as two numbers.
    """

    ordering: tuple[str, ...] = ()
    event_time: bool = False
    partial: PartialUpdate | None = None
    folds: bool = False
    columns: frozenset[str] | None = None
    merger: Merger | None = None
    unavailable: str = ""
    is_sequence: bool = False

    @property
    def stored_may_win(self) -> bool:
        """Tell whether a stored row may be newer than an incoming row."""
        return self.event_time and bool(self.ordering) and self.merger is None

    @property
    def keeps_whole_rows(self) -> bool:
        """Tell whether a stored row that is newer than the incoming row stays unchanged."""
        return self.stored_may_win and self.partial is None

    @property
    def fills_nulls(self) -> bool:
        """Tell whether nulls of the newer row are filled from the older row."""
        return self.partial is PartialUpdate.IGNORE_DEFAULTS

    @property
    def orders_deletes(self) -> bool:
        """Tell whether an incoming delete loses to a stored row that is newer."""
        return self.stored_may_win and not self.fills_nulls

    def mask_kept(
        self, stored: pa.Table, stored_is_newer: npt.NDArray[np.bool_], deleted: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the pairs whose stored row stays unchanged, because it is newer and its fields are set.

        Args:
            stored: the stored rows.
            stored_is_newer: a flag per pair: whether the stored row is newer than the incoming row.
            deleted: a flag per pair: whether the incoming row is a delete.
        """
        if self.keeps_whole_rows or not self.orders_deletes or not stored_is_newer.any():
            return stored_is_newer & self.keeps_whole_rows
        is_open = np.zeros(len(stored_is_newer), bool)
        for column in stored.columns:
            is_set = known_values(column, self.partial, self.unavailable)
            is_open |= False if is_set is None else ~is_set
        return stored_is_newer & (deleted | ~is_open)

    def ordering_columns(self, rows: pa.Table | pa.RecordBatch) -> list[pa.ChunkedArray] | list[pa.Array]:
        """Return a column for each ordering field, in a form in which the greater value is that of the newer row."""
        return ordering_columns(rows, self.ordering, is_sequence=self.is_sequence)

    @property
    def makes_rows(self) -> bool:
        """Tell whether the merged row may have values of both rows, so that `make_rows` must be called."""
        return self.partial is not None or self.merger is not None

    def make_rows(
        self, stored: pa.Table, incoming: pa.Table, stored_is_newer: npt.NDArray[np.bool_]
    ) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Merge pairs of rows. Return the rows in ``incoming``'s schema, and a flag per row: whether it is deleted.

        Raises:
            InvalidInputError: the user's function failed.
        """
        if self.merger is not None:
            return self.merger.merge_rows(stored, incoming)
        rows = fill_unset(stored, incoming, stored_is_newer, self.partial, self.unavailable)
        return rows, np.zeros(incoming.num_rows, bool)

    @property
    def combines_parts(self) -> bool:
        """Tell whether duplicates may be removed within each part of the input first, then across the parts.

        If `folds` is set, this is not allowed. Rows then fill each other's values in order of arrival, so the result
        depends on all earlier rows, not only on one row of each part.
        """
        return not self.folds
