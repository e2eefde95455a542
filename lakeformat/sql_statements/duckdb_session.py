"""One duckdb connection for one statement: what its names mean, its time zone, its errors in our words.

A table's rows as a dataset that duckdb scans: it reads the columns that a query needs, when the query needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakeformat.arrow.conform import read_schema
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, InvalidOptionError, TableNotFoundError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.record import RECORD_KEY
from lakeformat.read.scan import scan_of
from lakeformat.sql_statements.parse import Dialect, first_word, shortened, tokens_of
from lakeformat.storage.port import Storage
from lakeformat.storage.scratch import temporary_folder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["DuckDBSession", "LazyScan", "duckdb_session", "quoted"]

#: Older versions ask Arrow for rows by conditions on NaN that mean something else there.
_OLDEST: Final = 2
_MISSING: Final = re.compile(r"Table with name (.+?) does not exist")
#: What duckdb runs of its own kinds of statements. A pivot that finds its values itself is MULTI.
_QUERIES: Final = frozenset({"SELECT", "EXPLAIN", "RELATION", "MULTI"})
#: How such statements begin; "" is a parenthesis.
_WORDS: Final = frozenset(
    {"", "select", "with", "values", "from", "table", "pivot", "unpivot", "explain", "describe", "desc", "summarize"}
)


def quoted(name: str) -> str:
    """A name as duckdb quotes it."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def duckdb_session(time_zone: str) -> Iterator[DuckDBSession]:
    """Open duckdb in memory; what is too much for it goes to a temporary folder.

    Raises:
        InvalidOptionError: duckdb is not installed, or is too old.
        InvalidInputError: there is no such time zone.
    """
    try:
        import duckdb
    except ImportError:
        raise InvalidOptionError("SQL needs duckdb; run: pip install 'lakeformat[sql]'") from None
    if int(duckdb.__version__.partition(".")[0]) < _OLDEST:
        raise InvalidOptionError(
            f"SQL needs duckdb {_OLDEST}.0 and finds {duckdb.__version__}; run: pip install -U 'lakeformat[sql]'"
        )
    with temporary_folder() as folder, duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
        connection.execute("set temp_directory = ?", [folder])
        try:
            connection.execute("set TimeZone = ?", [time_zone])
        except duckdb.Error:
            raise InvalidInputError(f"time_zone={time_zone!r} is not known; give a name such as 'UTC'") from None
        yield DuckDBSession(connection)


class DuckDBSession:
    """A connection, and what has been made known to it."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self.connection = connection
        self._failed: list[Exception] = []

    def fail(self, error: Exception) -> None:
        """Keep an error of a read: it is what went wrong, whatever duckdb says."""
        self._failed.append(error)

    def give(self, name: str, rows: Any) -> None:
        """Make rows known by a name."""
        self.connection.register(name, rows)

    def give_named(self, text: str, source: Callable[[str], Any]) -> None:
        """Make known every table whose name is a word of the text; no row is read yet.

        Args:
            source: a word, in lower case -> its rows; None if it names nothing.
        """
        for word in sorted({token.value.lower() for token in tokens_of(text, Dialect.DUCKDB) if token.is_name}):
            rows = source(word)
            if rows is not None:
                self.give(word, rows)

    def kind(self, text: str) -> str:
        """Tell the kind of a statement, as duckdb reads it.

        Raises:
            InvalidInputError: it cannot be read, or is more than one.
        """
        with self.errors():
            statements = self.connection.extract_statements(text)
        if len(statements) != 1:
            raise InvalidInputError(f"{len(statements)} statements at once; give one")
        return str(statements[0].type.name)

    def check_query(self, text: str) -> None:
        """Refuse what is no query.

        Raises:
            InvalidInputError: says what to write.
        """
        word = first_word(text)
        if word not in _WORDS or self.kind(text) not in _QUERIES:
            cure = "; write create table ... using lakehouse" * (word == "create")
            raise InvalidInputError(f"{shortened(text)} is not supported without Spark{cure}")

    def run(self, text: str) -> None:
        """Run a statement."""
        with self.errors():
            self.connection.execute(text)

    def count(self, text: str) -> int:
        """Run a statement that changes rows, and tell how many changes it made."""
        with self.errors():
            return int(self.connection.execute(text).fetchall()[0][0])

    def rows(self, text: str) -> pa.Table:
        """Compute a query, in memory."""
        with self.errors():
            return self.connection.sql(text).to_arrow_table()

    def stream(self, text: str) -> pa.RecordBatchReader:
        """Compute a query, batch by batch; nothing else may run until it ends."""
        with self.errors():
            relation = self.connection.sql(text)
            make = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            reader: pa.RecordBatchReader = make(_BATCH_ROWS)
            return reader

    def number(self, text: str) -> int:
        """Compute one number."""
        return int(self.rows(text).column(0)[0].as_py() or 0)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Say duckdb's errors in one line.

        Raises:
            TableNotFoundError: a name that nobody has given.
            InvalidInputError: anything else.
        """
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            if self._failed:
                raise self._failed[0] from None
            missing = _MISSING.search(str(error)) if isinstance(error, duckdb.CatalogException) else None
            if missing is not None:
                raise TableNotFoundError(_unknown(missing[1].strip('"'))) from None
            raise InvalidInputError(_said(error)) from None


_BATCH_ROWS: Final = 100_000


def _unknown(name: str) -> str:
    argument = f"{name}=table" if name.isidentifier() else "t=table"
    return f'no table is known as {name!r}; give it by name, sql("...", {argument}), or by path: lakehouse."/its/path"'


def _said(error: Exception) -> str:
    said = " ".join(str(error).split("LINE ")[0].split())
    return f"the statement cannot be computed: {said}"


_SKIPPING: Final = (pa.types.is_signed_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date32)


class LazyScan(ds.Dataset):  # type: ignore[misc]
    """The rows of one snapshot. duckdb asks `scanner` for columns and gives it the conditions that Arrow can answer.

    Memory of a scan: as of a read of these columns, one file per thread; what duckdb keeps of the rows is its own.
    """

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot,
        options: Options,
        fail: Callable[[Exception], None],
        *,
        with_key: bool = False,
    ) -> None:
        """Make the scan.

        Args:
            fail: is given an error of a read, which duckdb would turn into one of its own.
            with_key: `RECORD_KEY` is the last column.
        """
        self._of, self._fail = (storage, snapshot, options), fail
        key = [pa.field(RECORD_KEY, pa.string())] if with_key else []
        columns = snapshot.columns(storage.location) if snapshot.schema is not None else pa.schema([])
        self._columns = pa.schema([*read_schema(columns), *key])

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._columns

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  duckdb's word.
        **how: Any,
    ) -> ds.Scanner:
        """Read the columns of the rows for which the filter is true, by Arrow's own rules."""
        wanted = list(self._columns.names if columns is None else columns)
        needed = [name for name in self._columns.names if name in wanted or _may_name(filter, name)]
        try:
            batches = self._read(needed or self._columns.names[:1], filter)
        except Exception as error:
            self._fail(error)
            raise
        return ds.Scanner.from_batches(batches, columns=wanted, filter=filter)

    def _read(self, columns: list[str], condition: pc.Expression | None) -> pa.RecordBatchReader:
        storage, snapshot, options = self._of
        if snapshot.instant_time is None:
            return pa.schema([self._columns.field(name) for name in columns]).empty_table().to_reader()
        scan = scan_of(storage, snapshot, options, columns)
        if condition is not None and self._skips_by(condition):
            try:
                scan = scan_of(storage, snapshot, options, columns, where=condition)
            except InvalidInputError:  # What statistics cannot answer, the scanner does.
                scan = scan_of(storage, snapshot, options, columns)
        reader = replace(scan, shows_progress=False).to_batches()
        return pa.RecordBatchReader.from_batches(reader.schema, self._watched(reader))

    def _watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            self._fail(error)
            raise

    def _skips_by(self, condition: pc.Expression) -> bool:
        """Tell whether files may be left out: every column of the condition has one order of its values."""
        named = [field for field in self._columns if _may_name(condition, field.name)]
        return all(any(is_kind(field.type) for is_kind in _SKIPPING) for field in named)


def _may_name(condition: pc.Expression | None, name: str) -> bool:
    """Tell whether a condition looks at a column; Arrow shows conditions, and not which columns they name."""
    return condition is not None and (not name.isidentifier() or name in str(condition))
