"""Forms of SQL statements: which text is which statement, and which goes to the host."""

from __future__ import annotations

from typing import Any

import pytest

from lakeformat import InvalidInputError
from lakeformat.sql_statements.maintenance import (
    CreateIndex,
    DescribeTable,
    DropIndex,
    Optimize,
    RestoreTable,
    ShowIndexes,
    ShowTable,
    ShowTables,
    Vacuum,
)
from lakeformat.sql_statements.parse import Dialect, Query, TableName, form
from lakeformat.sql_statements.recognize import recognize

_T = TableName("t")
_PATH = TableName("/a b/c", "/a b/c")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("create index if not exists `a` on t using A (x, `y`)", CreateIndex(_T, "a", ("x", "y"), True)),
        ("create  index a\non lakehouse.`/a b/c`", CreateIndex(_PATH, "a")),
        ("drop index if exists a on table t", DropIndex(_T, "a", True)),
        ("show indexes from t", ShowIndexes(_T)),
        ("show tables like 'a*'", ShowTables("a*")),
        ("show tables", ShowTables()),
        ("show create   table t", ShowTable(_T, "create")),
        ("DESC formatted t", DescribeTable(_T, "extended")),
        ("-- why\ndescribe history t limit 3", DescribeTable(_T, "history", 3)),
        ("describe table", DescribeTable(TableName("table"))),
        ("optimize t where a = 1 zorder by(a, `b`)", Optimize(_T, "a = 1", ("a", "b"))),
        ("vacuum t lite retain 3 hours dry run", Vacuum(_T, 3, True)),
        ("restore t to timestamp as of '2024-01-01'", RestoreTable(_T, "timestamp", "2024-01-01")),
    ],
)
def test_a_form_gives_its_statement(text: str, statement: Any) -> None:
    assert recognize(text, Dialect.SPARK, lambda name: True) == statement


@pytest.mark.parametrize(
    "text",
    [
        *("describe t", "describe t limit 3", "show partitions t partition (a = 1)", "show indexes from t"),
        *("create index a on t options (b = 1)", "drop index a on t", "alter table t rename to u", "show functions"),
    ],
)
def test_a_statement_about_a_table_that_is_not_ours_goes_to_the_host(text: str) -> None:
    assert recognize(text, Dialect.SPARK, lambda name: False) == Query(text)


@pytest.mark.parametrize("text", ["optimize t huh", "vacuum t x", "restore t", "truncate t"])
def test_another_form_of_a_verb_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"cannot read .*; write {text.split(maxsplit=1)[0]} "):
        recognize(text, Dialect.SPARK, lambda name: True)


def test_optional_parts_take_the_whitespace_before_them() -> None:
    pattern = form("undo [all] {what:this|that one} [quoted {text:quoted}]{rest:rest}")

    found = pattern.fullmatch("UNDO\n that  one quoted 'x y'; z")

    assert found is not None
    assert (found["what"], found["text"], found["rest"]) == ("that  one", "'x y'", "; z")
    assert pattern.fullmatch("undoall this") is None
