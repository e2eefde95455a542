from __future__ import annotations

import builtins
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.predicate import (
    Always,
    And,
    Calculated,
    ColumnComparison,
    Comparison,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    column_path,
    columns_of,
    parse_where,
    path_parts,
)
from lakeformat.predicate.nodes import Call, ColumnValue, Constant, Truth


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("a = 1", Comparison("a", "=", 1)),
        ("a == 1", Comparison("a", "=", 1)),
        ("a <> 1", Comparison("a", "!=", 1)),
        ("a != -1", Comparison("a", "!=", -1)),
        ("a <=> null", Comparison("a", "<=>", None)),
        ("5 < a", Comparison("a", ">", 5)),
        ("5 >= a", Comparison("a", "<=", 5)),
        ("a > 2.50", Comparison("a", ">", Decimal("2.50"))),
        ("a > -.5", Comparison("a", ">", Decimal("-0.5"))),
        ("a > 1e3", Comparison("a", ">", 1000.0)),
        ("a > 2.5D", Comparison("a", ">", 2.5)),
        ("a > 5L", Comparison("a", ">", 5)),
        ("a >= -128Y", Comparison("a", ">=", -128)),
        ("a = (1)", Comparison("a", "=", 1)),
        ("a = true", Comparison("a", "=", True)),
        ("a", Comparison("a", "=", True)),
        ("not a", Not(Comparison("a", "=", True))),
        ("!a = 1", Not(Comparison("a", "=", 1))),
        ("true", Always(True)),
        ("a = 'it\\'s'", Comparison("a", "=", "it's")),
        ('a = "x"', Comparison("a", "=", "x")),
        ("a = 'x\\\\y\\n'", Comparison("a", "=", "x\\y\n")),
        ("a = X'1fA0'", Comparison("a", "=", b"\x1f\xa0")),
        ("a > DATE '2024-02-29'", Comparison("a", ">", date(2024, 2, 29))),
        (
            "a > timestamp '2024-01-01 10:00:00.5'",
            Comparison("a", ">", datetime(2024, 1, 1, 10, 0, 0, 500_000)),
        ),
        (
            "a > TIMESTAMP '2024-01-01T10:00:00Z'",
            Comparison("a", ">", datetime(2024, 1, 1, 10, tzinfo=timezone.utc)),
        ),
        ("a in (1, 2.5, null)", In("a", (1, Decimal("2.5"), None))),
        ("a not in ('x')", Not(In("a", ("x",)))),
        ("a between 1 and 2", And((Comparison("a", ">=", 1), Comparison("a", "<=", 2)))),
        ("a not between 1 and 2", Not(And((Comparison("a", ">=", 1), Comparison("a", "<=", 2))))),
        ("a like 'x\\_%'", Like("a", "x\\_%")),
        ("a not like 'x'", Not(Like("a", "x"))),
        ("a is null", IsNull("a")),
        ("a is not null", Not(IsNull("a"))),
        ("a.b.c = 1", Comparison("a.b.c", "=", 1)),
        ("a.b.c.d.e.f is null", IsNull("a.b.c.d.e.f")),
        ("`a.b`.c = 1", Comparison("`a.b`.c", "=", 1)),
        ("`show me` = 1", Comparison("show me", "=", 1)),
        ("`a``b` = 1", Comparison("`a``b`", "=", 1)),
        ("date > '2024-01-01'", Comparison("date", ">", "2024-01-01")),
        (
            "a = 1 or b = 2 and not c = 3",
            Or((Comparison("a", "=", 1), And((Comparison("b", "=", 2), Not(Comparison("c", "=", 3)))))),
        ),
        (
            "(a = 1 or b = 2) and c",
            And((Or((Comparison("a", "=", 1), Comparison("b", "=", 2))), Comparison("c", "=", True))),
        ),
        ("a = 1 /* one */ -- and done", Comparison("a", "=", 1)),
        ("a > b", ColumnComparison("a", ">", "b")),
        ("a like 'x/_/%\\\\' escape '/'", Like("a", "x\\_\\%\\\\")),
        ("length(a) > 2", Calculated(Call(">", (Call("length", (ColumnValue("a"),)), Constant(2))))),
        ("a + 5L = 1", Calculated(Call("=", (Call("+", (ColumnValue("a"), Constant(5, pa.int64()))), Constant(1))))),
        ("a < 1 < 2", Calculated(Call("<", (Truth(Comparison("a", "<", 1)), Constant(2))))),
        ("a::int = 1", Calculated(Call("=", (Call("cast", (ColumnValue("a"),), pa.int32()), Constant(1))))),
        ("substr(a.b, 1)", Calculated(Call("substring", (ColumnValue("a.b"), Constant(1))))),
    ],
)
def test_text_is_parsed_to_a_filter(text: str, predicate: Predicate) -> None:
    assert parse_where(text) == predicate


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a is true", "a IS TRUE"),
        ("a ilike 'x'", "ILIKE"),
        ("a like 'x' escape '//'", "ESCAPE"),
        ("a like '/x' escape '/'", "must stand before"),
        ("a ilike 'x' escape '/'", "ESCAPE"),
        ("lowr(a) = 'x'", "did you mean 'lower'"),
        ("xyzzy(a) = 'x'", "there is no function xyzzy, but: abs"),
        ("nullif(a) = 1", "1 arguments"),
        ("cast(a as array<int>) = 1", "no type array<int>"),
        ("count(a) > 1", "count(a)"),
        ("lower(distinct a) = 'x'", "DISTINCT a"),
        ("sum(a) over () > 1", "OVER"),
        ("a + 1 in (b)", "b is not a literal"),
        (" + ".join(["a"] * 100) + " > 1", "nested too deeply"),
        ("a like any ('x')", "ANY"),
        ("a like b", "a LIKE b"),
        ("a in (select 1)", "SELECT 1"),
        ("a in ()", "a IN ()"),
        ("5 in (a)", "5 IN (a)"),
        ("a between symmetric 2 and 1", "BETWEEN"),
        ("a = 1.5L", "1.5"),
        ("a = 300Y", "300"),
        ("a = 1e999", "1e999"),
        ("a = -'x'", "minus"),
        ("a = 'it''s'", "s"),
        ("a = 'x\\d'", "backslash"),
        ("a = X'123'", "X'"),
        ("a = DATE '2024-02-30'", "2024-02-30"),
        ("a = DATE '2024'", "2024"),
        ("a['b'] = 1", "a["),
        ("t.*", "t.*"),
        ("a = :p", ":p"),
        ("a = interval 1 day", "INTERVAL"),
        ("exists(a)", "EXISTS"),
        ("a > 1; b > 2", "a > 1"),
        ("a > 1 group by b", "group by"),
        ("a > 1 foo", "foo"),
        ("a >", "a >"),
        ("", "filter"),
        ("(" * 3000 + "a" + ")" * 3000, "deep"),
    ],
)
def test_unsupported_sql_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_where(text)
    assert named.lower() in str(refused.value).lower()


def test_chain_of_5000_conditions_is_parsed() -> None:
    text = " or ".join(f"a = {i}" for i in range(5000))
    assert parse_where(text) == Or(tuple(Comparison("a", "=", i) for i in range(5000)))


def test_missing_sqlglot_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_sqlglot(name: str, *args: object) -> object:
        if name.startswith("sqlglot"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_sqlglot)
    with pytest.raises(InvalidOptionError, match=r"pip install sqlglot"):
        parse_where("a = 1")


@pytest.mark.parametrize("parts", [("a",), ("a", "b"), ("a.b", "c"), ("a`b",), ("`",), (" ", "é")])
def test_column_paths_round_trip(parts: tuple[str, ...]) -> None:
    assert path_parts(column_path(parts)) == parts


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "`a", "a`b", "``", "`a`b"])
def test_broken_paths_are_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="not a column name"):
        path_parts(path)


def test_columns_of_gives_top_level_names() -> None:
    assert columns_of(parse_where("a.b > 1 or not (`c.d` is null and true) and a.x in (1)")) == {"a", "c.d"}
