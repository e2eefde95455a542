"""One duckdb connection for one statement: what its names mean, its time zone, its errors in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.errors import InvalidInputError, InvalidOptionError, TableNotFoundError
from lakeformat.sql_statements.parse import first_word, shortened
from lakeformat.sql_statements.tokens import Dialect, tokens_of
from lakeformat.storage.mapped import temporary_folder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["DuckDBSession", "duckdb_session", "quoted"]

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
