"""The runner of one SQL statement, for all hosts: which function runs which statement."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyarrow as pa

from lakeformat.sql_statements.ddl import CreateTable, DropTable
from lakeformat.sql_statements.maintenance import ShowTables
from lakeformat.sql_statements.parse import Call, Query, TableName
from lakeformat.sql_statements.read_changes import Change
from lakeformat.sql_statements.recognize import AnyStatement
from lakeformat.sql_statements.run_ddl import Host, KnownTables, create_table, drop_table
from lakeformat.sql_statements.run_maintenance import find_called_table, run_call, run_on_table
from lakeformat.transaction.commit.result import WriteResult

__all__ = ["StatementRunner"]


class StatementRunner(Host):
    """The part of a runner that all hosts share. A host computes rows, and knows its tables.

    Attributes:
        known: the names of tables.
    """

    known: KnownTables

    def run(self, statement: AnyStatement) -> Any:
        """Run the statement. Return the rows of a query, or the result of a write, as the host gives them."""
        match statement:
            case Query():
                return self.query(statement.text)
            case Change():
                return self.change(statement)
            case ShowTables():
                return self.show_tables(statement)
            case Call():
                return self.answer(run_call(statement, self.called_table(find_called_table(statement))))
            case CreateTable():
                return self.answer(create_table(statement, self.known, self))
            case DropTable():
                return self.answer(drop_table(statement, self.known))
            case _:
                return self.answer(run_on_table(statement, self.table(statement.target)))

    @abstractmethod
    def query(self, text: str) -> Any:
        """Run a query and return its rows."""

    @abstractmethod
    def change(self, change: Change) -> Any:
        """Run ``insert``, ``update``, ``delete`` or ``merge``."""

    @abstractmethod
    def show_tables(self, statement: ShowTables) -> Any:
        """Return the names of the tables."""

    @abstractmethod
    def table(self, named: TableName) -> Any:
        """Open a table so that its commits store the statement's text. Raise an error if there is none."""

    @abstractmethod
    def called_table(self, name: str) -> Any:
        """Open the table that a ``call`` gives by its name or its path."""

    @abstractmethod
    def answer(self, answer: pa.Table | WriteResult) -> Any:
        """Return rows, or the result of a write, in the host's form."""
