"""Arrow rows that print: `ResultTable`, and the first rows of any Arrow table as text and as HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.display import cut_text, html_pairs, html_rows, text_rows
from lakeformat.errors import InvalidInputError, LakeformatError
from lakeformat.extras import install_line
from lakeformat.public import public

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = [
    "SHOWN_ROWS",
    "ResultTable",
    "first_rows",
    "import_package",
    "preview",
    "preview_html",
    "rows_as_html",
    "rows_as_text",
    "to_frame",
]

#: Number of rows that are shown.
SHOWN_ROWS: Final = 10
#: Maximum number of columns, and of characters of a value, that are shown in a notebook.
_COLUMNS, _CHARACTERS = 50, 200


def rows_as_text(rows: pa.Table, note: str = "") -> str:
    """Return the first rows as aligned text.

    Args:
        note: a line below the rows, such as their number; none by default.
    """
    return text_rows(rows.column_names, _values(rows), note=note)


def rows_as_html(rows: pa.Table, *, caption: str = "", note: str = "") -> str:
    """Return the first rows and columns as an HTML table."""
    wide = len(rows.column_names) - _COLUMNS
    more = f"{wide:,} more columns. " if wide > 0 else ""
    shown = rows.select(range(min(len(rows.column_names), _COLUMNS)))
    return html_rows(shown.column_names, _values(shown), caption=caption, note=more + note)


def import_package(package: str) -> Any:
    """Import a package. Raise `InvalidInputError` if it is missing."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError:
        extra = {"duckdb": "sql"}.get(package, package)
        raise InvalidInputError(f"{package} is not installed here; {install_line(extra)}") from None


def to_frame(rows: pa.Table) -> pd.DataFrame:
    """Return rows as a pandas frame, and release each Arrow column when it is converted. ``rows`` cannot be used again.

    Columns of several chunks are joined once, and are columns of the frame as they are. pandas warns of more than 100
    such columns when one is added, and cannot change a column that shares Arrow's memory, as one of a single chunk
    would. In these cases pandas copies the columns into blocks.
    """
    import_package("pandas")
    is_copied = all(column.num_chunks > 1 for column in rows.columns)
    frame: pd.DataFrame = rows.to_pandas(
        self_destruct=True, split_blocks=is_copied and rows.num_columns <= _MOST_BLOCKS
    )
    return frame


#: Maximum number of columns that stay apart in a pandas frame.
_MOST_BLOCKS: Final = 90


def first_rows(batches: pa.RecordBatchReader) -> pa.Table:
    """Read the rows that are shown, and one more if there is one, so that a preview can say that there are more."""
    shown, count = [], 0
    for batch in batches:
        shown.append(batch.slice(0, SHOWN_ROWS + 1 - count))
        count += shown[-1].num_rows
        if count > SHOWN_ROWS:
            break
    return pa.Table.from_batches(shown, batches.schema)


def preview(head: str, read: Callable[[], pa.Table]) -> str:
    """Return a line and the first rows as text; if they cannot be read, the reason.

    Args:
        read: reads the first rows, one more than are shown if there are more.
    """
    try:
        rows = read()
    except LakeformatError as error:
        return f"{head}\n{type(error).__name__}: {error}"
    return f"{head}\n{rows_as_text(rows, _count(rows))}"


def preview_html(head: str, read: Callable[[], pa.Table]) -> str:
    """Return what `preview` returns as HTML."""
    try:
        rows = read()
    except LakeformatError as error:
        return html_pairs({type(error).__name__: str(error)}, caption=head)
    return rows_as_html(rows, caption=head, note=_count(rows))


def _count(rows: pa.Table) -> str:
    count = rows.num_rows
    return f"the first {SHOWN_ROWS} rows" if count > SHOWN_ROWS else f"{count:,} row{'s' * (count != 1)}"


def _values(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [map(_value, column.to_pylist()) for column in rows.slice(0, SHOWN_ROWS).columns]
    return list(zip(*columns, strict=True))


def _value(value: Any) -> Any:
    """Return a value for display: finite numbers as they are, so that they are aligned; others as text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, int | float) else cut_text(str(value), _CHARACTERS)


@public
class ResultTable:
    """Rows in memory that print as a table in a shell and in a notebook.

    All names of a ``pyarrow.Table`` work (``num_rows``, ``filter``, ``to_pylist`` ...), ``rows["column"]`` too, and
    whatever takes Arrow streams takes it (polars, duckdb, pandas, ``pyarrow.table``). Functions of pyarrow that ask for
    a ``pyarrow.Table`` take `to_arrow`.
    """

    __slots__ = ("_rows",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._rows

    def to_pandas(self, **how: Any) -> pd.DataFrame:
        """Return the rows as a pandas frame. Arguments as of ``pyarrow.Table.to_pandas``."""
        import_package("pandas")
        frame: pd.DataFrame = self._rows.to_pandas(**how)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars frame."""
        frame: pl.DataFrame = import_package("polars").from_arrow(self._rows)
        return frame

    def equals(self, other: Any, **how: Any) -> bool:
        """Tell whether another table has the same rows, as ``pyarrow.Table.equals``."""
        return bool(self._rows.equals(other.to_arrow() if isinstance(other, ResultTable) else other, **how))

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, ResultTable | pa.Table) else NotImplemented

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, column: Any) -> Any:
        return self._rows[column]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._rows, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._rows) if not name.startswith("_"))})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._rows,)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a capsule of the Arrow PyCapsule protocol."""
        return self._rows.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return rows_as_text(self._rows, self._note)

    def _repr_html_(self) -> str:
        return rows_as_html(self._rows, note=self._note)

    @property
    def _note(self) -> str:
        count = len(self._rows)
        shown = f", the first {SHOWN_ROWS} are shown" if count > SHOWN_ROWS else ""
        return f"{count:,} row{'s' * (count != 1)}{shown}"
