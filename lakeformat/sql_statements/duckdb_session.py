"""A duckdb connection for one statement, and the scan through which duckdb reads a lakeformat table.

A table's rows are registered in duckdb as an Arrow dataset, which reads only the columns that a query needs, when
duckdb requests them.
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

from lakeformat.arrow.conform import reader_schema
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, InvalidOptionError, TableNotFoundError
from lakeformat.extras import install_line
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.record import RECORD_KEY
from lakeformat.read.scan import make_scan
from lakeformat.sql_statements.parse import Dialect, first_word, quote_sql, tokenize
from lakeformat.storage.port import Storage
from lakeformat.storage.scratch import temporary_folder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["DuckDBSession", "LazyScan", "duckdb_session", "quote_name"]

#: Minimum supported major version of duckdb. Older versions let Arrow evaluate conditions for which Arrow and duckdb
#: differ on NaN, so that queries would return wrong rows.
_OLDEST: Final = 2
_MISSING: Final = re.compile(r"Table with name (.+?) does not exist")
#: duckdb's names for the types of the statements that `check_query` allows. MULTI is a pivot without a list of values.
_QUERIES: Final = frozenset({"SELECT", "EXPLAIN", "RELATION", "MULTI"})
#: First words of the statements that are allowed; "" allows a statement that begins with a parenthesis.
_WORDS: Final = frozenset(
    {"", "select", "with", "values", "from", "table", "pivot", "unpivot", "explain", "describe", "desc", "summarize"}
)


def quote_name(name: str) -> str:
    """Quote a name for duckdb."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def duckdb_session(time_zone: str) -> Iterator[DuckDBSession]:
    """Open a duckdb database in memory for the block. Data that does not fit into memory goes to a temporary folder.

    Raises:
        InvalidOptionError: if duckdb is not installed, or is too old.
        InvalidInputError: if there is no such time zone.
    """
    try:
        import duckdb
    except ImportError:
        raise InvalidOptionError(f"SQL needs duckdb; {install_line('sql')}") from None
    if int(duckdb.__version__.partition(".")[0]) < _OLDEST:
        raise InvalidOptionError(
            f"SQL needs duckdb {_OLDEST}.0 and finds {duckdb.__version__}; {install_line('sql', '-U')}"
        )
    with temporary_folder() as folder, duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
        connection.execute("set temp_directory = ?", [folder])
        try:
            connection.execute("set TimeZone = ?", [time_zone])
        except duckdb.Error:
            raise InvalidInputError(f"time_zone={time_zone!r} is not known; give a name such as 'UTC'") from None
        yield DuckDBSession(connection)


class DuckDBSession:
    """A duckdb connection with the tables that were registered in it."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self.connection = connection
        self._failed: list[Exception] = []

    def record_error(self, error: Exception) -> None:
        """Store an error of a `LazyScan`, so that `translate_errors` raises it instead of duckdb's own error."""
        self._failed.append(error)

    def register(self, name: str, rows: Any) -> None:
        """Make rows (Arrow data or a dataset) available to statements under a name."""
        self.connection.register(name, rows)

    def register_named(self, text: str, source: Callable[[str], Any]) -> None:
        """Register the rows of each table whose name is a word of the SQL statement. No row is read yet.

        Args:
            text: the statement.
            source: a function that gets a word in lower case and returns the rows of the table with this name; None
                if there is no such table.
        """
        for word in sorted({token.value.lower() for token in tokenize(text, Dialect.DUCKDB) if token.is_name}):
            rows = source(word)
            if rows is not None:
                self.register(word, rows)

    def statement_kind(self, text: str) -> str:
        """Return the type of a statement, as duckdb parses it.

        Raises:
            InvalidInputError: if it cannot be parsed, or is not one statement.
        """
        with self.translate_errors():
            statements = self.connection.extract_statements(text)
        if len(statements) != 1:
            raise InvalidInputError(f"{len(statements)} statements at once; give one")
        return str(statements[0].type.name)

    def check_query(self, text: str) -> None:
        """Check that a statement is a query.

        Raises:
            InvalidInputError: if it is not; the message suggests an alternative if there is one.
        """
        word = first_word(text)
        if word not in _WORDS or self.statement_kind(text) not in _QUERIES:
            cure = "; write create table ... using lakehouse" * (word == "create")
            raise InvalidInputError(f"{quote_sql(text)} is not supported without Spark{cure}")

    def run(self, text: str) -> None:
        """Run a statement and ignore its result."""
        with self.translate_errors():
            self.connection.execute(text)

    def run_and_count(self, text: str) -> int:
        """Run a statement that changes rows. Return the number of changed rows."""
        with self.translate_errors():
            return int(self.connection.execute(text).fetchall()[0][0])

    def read_all(self, text: str) -> pa.Table:
        """Run a query and return all its rows."""
        with self.translate_errors():
            return self.connection.sql(text).to_arrow_table()

    def stream(self, text: str) -> pa.RecordBatchReader:
        """Run a query and return a reader of its rows. Run no other statement until the reader is exhausted."""
        with self.translate_errors():
            relation = self.connection.sql(text)
            make = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            reader: pa.RecordBatchReader = make(_BATCH_ROWS)
            return reader

    def read_number(self, text: str) -> int:
        """Run a query for a single number and return the number; 0 for null."""
        return int(self.read_all(text).column(0)[0].as_py() or 0)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn duckdb's errors into lakeformat's, in one line.

        Raises:
            TableNotFoundError: if a name is unknown.
            InvalidInputError: for any other error.
        """
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            if self._failed:
                raise self._failed[0] from None
            missing = _MISSING.search(str(error)) if isinstance(error, duckdb.CatalogException) else None
            if missing is not None:
                raise TableNotFoundError(_unknown_table_text(missing[1].strip('"'))) from None
            raise InvalidInputError(_error_text(error)) from None


_BATCH_ROWS: Final = 100_000


def _unknown_table_text(name: str) -> str:
    argument = f"{name}=table" if name.isidentifier() else "t=table"
    return f'no table is known as {name!r}; give it by name, sql("...", {argument}), or by path: lakehouse."/its/path"'


def _error_text(error: Exception) -> str:
    text = " ".join(str(error).split("LINE ")[0].split())
    return f"the statement cannot be computed: {text}"


_SKIPPING: Final = (Kind.INTEGER, Kind.TEXT, Kind.BOOLEAN, Kind.DATE)


class LazyScan(ds.Dataset):  # type: ignore[misc]
    """A dataset of the rows of one snapshot, from which duckdb reads.

    duckdb calls `scanner` with the needed columns and with the conditions that Arrow supports. Memory of a scan: that
    of reading these columns, one file per thread; duckdb's own memory is not included.
    """

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot,
        options: Options,
        record_error: Callable[[Exception], None],
        *,
        with_key: bool = False,
    ) -> None:
        """Make the scan of a snapshot's rows.

        Args:
            record_error: called with an error of a read, which duckdb would replace by an error of its own.
            with_key: whether `RECORD_KEY` is added as the last column.
        """
        self._source, self._record_error = (storage, snapshot, options), record_error
        key = [pa.field(RECORD_KEY, pa.string())] if with_key else []
        columns = snapshot.columns(storage.location) if snapshot.schema is not None else pa.schema([])
        self._columns = pa.schema([*reader_schema(columns), *key])

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        return self._columns

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  The name is duckdb's.
        **how: Any,
    ) -> ds.Scanner:
        """Return a scanner of these columns, for the rows for which Arrow evaluates the filter to true."""
        asked = list(self._columns.names if columns is None else columns)
        needed = [name for name in self._columns.names if name in asked or _may_use(filter, name)]
        try:
            batches = self._read(needed or self._columns.names[:1], filter)
        except Exception as error:
            self._record_error(error)
            raise
        return ds.Scanner.from_batches(batches, columns=asked, filter=filter)

    def _read(self, columns: list[str], condition: pc.Expression | None) -> pa.RecordBatchReader:
        storage, snapshot, options = self._source
        if snapshot.instant_time is None:
            return pa.schema([self._columns.field(name) for name in columns]).empty_table().to_reader()
        scan = make_scan(storage, snapshot, options, columns)
        if condition is not None and self._can_skip_files(condition):
            try:
                scan = make_scan(storage, snapshot, options, columns, where=condition)
            except InvalidInputError:  # No file is skipped, which is safe: the scanner filters all rows.
                scan = make_scan(storage, snapshot, options, columns)
        reader = replace(scan, shows_progress=False).to_batches()
        return pa.RecordBatchReader.from_batches(reader.schema, self._report_errors(reader))

    def _report_errors(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            self._record_error(error)
            raise

    def _can_skip_files(self, condition: pc.Expression) -> bool:
        """Tell whether a condition of duckdb can skip files.

        It can if Arrow and lakeformat compare values alike for the types of all columns that the condition may use.
        """
        named = [field for field in self._columns if _may_use(condition, field.name)]
        return all(kind_of(field.type) in _SKIPPING for field in named)


def _may_use(condition: pc.Expression | None, name: str) -> bool:
    """Tell whether a condition may use a column: its text has the name. Arrow does not list a condition's columns."""
    return condition is not None and (not name.isidentifier() or name in str(condition))
