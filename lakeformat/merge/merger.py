"""The user's own merge rule: a Python function on Arrow tables, given directly or by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.config.callables import import_callable
from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.merge.order import deleted_rows
from lakeformat.model.record import IS_DELETED

__all__ = ["MergeFunction", "Merger"]

#: ``(stored, incoming) -> merged``: tables of the same columns and as many rows, row ``i`` of each has one key.
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
        fixed: columns, or fields of structs, whose values the function must not change: those of key and partition.
    """

    target: MergeFunction | str
    fixed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the function's name, for messages."""
        if isinstance(self.target, str):
            return self.target
        name = getattr(self.target, "__qualname__", None) or repr(self.target)
        return f"{getattr(self.target, '__module__', '')}:{name}".lstrip(":")

    def function(self) -> MergeFunction:
        """Return the function itself; import it if it is given by name.

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
            raise InvalidOptionError(f"the merger {self} is {error} and no function; give a function") from error

    def merged(self, stored: pa.Table, incoming: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Call the function. Return its rows in ``incoming``'s schema, and a flag for each row that it deletes.

        Raises:
            InvalidInputError: the function failed, or its result has other rows or columns; names the function.
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
        deleted = self._deleted(answer)
        if IS_DELETED not in incoming.schema.names and IS_DELETED in answer.schema.names:
            answer = answer.drop_columns([IS_DELETED])
        self._check_columns(answer, incoming.schema, deleted)
        for name in self.fixed:
            unchanged = pc.or_(_is_same(answer, stored, name), _is_same(answer, incoming, name))
            if not pc.all(unchanged, min_count=0).as_py():
                raise InvalidInputError(
                    f"the merger {self} changed {name!r}, which makes the row's key; leave it as it is"
                )
        return pa.Table.from_arrays(answer.columns, schema=incoming.schema), deleted

    def _deleted(self, answer: pa.Table) -> npt.NDArray[np.bool_]:
        if IS_DELETED not in answer.schema.names:
            return np.zeros(answer.num_rows, bool)
        flags = answer.column(IS_DELETED)
        if not pa.types.is_boolean(flags.type):
            raise InvalidInputError(f"the merger {self} returned {IS_DELETED} as {flags.type}; make it boolean")
        return deleted_rows(flags, answer.num_rows)

    def _check_columns(self, answer: pa.Table, wanted: pa.Schema, deleted: npt.NDArray[np.bool_]) -> None:
        given = [(field.name, field.type) for field in answer.schema]
        expected = [(field.name, field.type) for field in wanted]
        if given != expected:
            both = set(given) ^ set(expected)
            odd = [f"{name} {kind}" for name, kind in dict.fromkeys([*given, *expected]) if (name, kind) in both]
            raise InvalidInputError(
                f"the merger {self} returned other columns than it was given ({', '.join(odd) or 'in another order'}); "
                "return incoming's schema"
            )
        for field in wanted:
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
    one, other = (_values(table, name) for table in (left, right))
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(pc.fill_null(pc.equal(one, other), False), both_null)


def _values(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name in table.schema.names:
        return table.column(name)
    top, *inner = name.split(".")
    return pc.struct_field(table.column(top), inner)
