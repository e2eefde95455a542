"""`lakeformat.Table` and `lakeformat.spark.LakehouseTable` have the same methods, arguments, defaults and types."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import re
from collections.abc import Callable
from typing import Any

import pytest

import lakeformat
import lakeformat.spark
from lakeformat.spark import LakehouseTable

#: Methods that convert a `Table` to Arrow data and to data frames; a DataFrame of Spark has its own.
ARROW_ONLY = {"to_arrow", "to_batches", "to_duckdb", "to_pandas", "to_polars", "to_pyarrow_dataset"}
#: Constructors that need a session. Plain Python has `lakeformat.open` and `lakeformat.create`.
SPARK_ONLY = {"create", "forPath"}
#: Arguments without a meaning in plain Python. They come last.
SPARK_ARGUMENTS = {"read": ["via"]}
#: (method, argument) -> the types in plain Python and in Spark, if they differ. ``return`` is the result.
TYPES = {
    ("read", "where"): ("Where | None", "str | Column | None"),
    ("read", "return"): ("Scan", "DataFrame"),
    ("changes", "return"): ("Changes | ChangeImages", "DataFrame"),
    ("schema", "return"): ("pa.Schema", "StructType"),
}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def verb(kind: type, name: str) -> Callable[..., Any]:
    found = inspect.getattr_static(kind, name)
    if isinstance(found, property):
        assert found.fget is not None
        return found.fget
    return getattr(found, "__func__", found)  # type: ignore[no-any-return]


def shape(name: str, function: Callable[..., Any], side: int) -> list[tuple[Any, ...]]:
    """Return name, kind, default and type of each argument, and the type of the result."""
    signature = inspect.signature(function)
    found: list[tuple[Any, ...]] = []
    for each in signature.parameters.values():
        types = TYPES.get((name, each.name))
        assert types is None or types[side] == each.annotation, (name, each)
        found.append((each.name, each.kind, each.default, types or each.annotation))
    types = TYPES.get((name, "return"))
    assert types is None or types[side] == signature.return_annotation, name
    return [*found, ("return", types or signature.return_annotation)]


def test_both_tables_have_the_same_verbs() -> None:
    assert public(lakeformat.Table) - public(LakehouseTable) == ARROW_ONLY
    assert public(LakehouseTable) - public(lakeformat.Table) == SPARK_ONLY


@pytest.mark.parametrize("name", sorted(public(lakeformat.Table) & public(LakehouseTable)))
def test_a_verb_has_the_same_arguments_in_both(name: str) -> None:
    ours, sparks = shape(name, verb(lakeformat.Table, name), 0), shape(name, verb(LakehouseTable, name), 1)
    extra = SPARK_ARGUMENTS.get(name, [])
    assert [each[0] for each in sparks[len(ours) - 1 : -1]] == extra
    assert [*sparks[: len(ours) - 1], sparks[-1]] == ours


def test_a_table_is_made_and_opened_by_the_same_arguments() -> None:
    for ours, sparks in ((lakeformat.create, LakehouseTable.create), (lakeformat.open, LakehouseTable.forPath)):
        wanted = [(each.name, each.kind, each.default) for each in inspect.signature(ours).parameters.values()]
        found = [(each.name, each.kind, each.default) for each in inspect.signature(sparks).parameters.values()]
        assert found[0][0] == "spark"
        assert found[1:] == wanted


def test_spark_reads_by_the_same_arguments_as_its_table() -> None:
    wanted = list(inspect.signature(LakehouseTable.read).parameters.values())[1:]
    found = list(inspect.signature(lakeformat.spark.read).parameters.values())
    assert [each.name for each in found[:2]] == ["spark", "path"]
    assert found[2 : 2 + len(wanted)] == wanted
    assert [each.name for each in found[2 + len(wanted) :]] == ["storage_options", "options"]


@pytest.mark.parametrize("kind", [lakeformat.Table, LakehouseTable])
def test_only_the_first_argument_of_a_read_has_a_place(kind: type) -> None:
    for name in public(kind) & {"count", "explain", "read", "to_arrow", "to_batches", "to_pandas", "to_polars"}:
        given = list(inspect.signature(verb(kind, name)).parameters.values())[2:]
        assert {each.kind for each in given} <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}, name


@pytest.mark.parametrize("kind", [lakeformat.Table, LakehouseTable])
def test_an_instant_and_a_dry_run_have_one_name_and_one_default(kind: type) -> None:
    for name in public(kind):
        function = verb(kind, name)
        if not callable(function):
            continue
        given = inspect.signature(function).parameters
        assert not {"instant", "timestamp", "commit_time"} & set(given), name
        if "dry_run" in given:
            assert given["dry_run"].default is False, name
            assert given["dry_run"].kind is inspect.Parameter.KEYWORD_ONLY, name


@pytest.mark.parametrize("kind", [lakeformat.Table, LakehouseTable])
def test_every_type_of_a_public_method_is_exported(kind: type) -> None:
    missing = set()
    for name in public(kind):
        function = inspect.unwrap(verb(kind, name))
        for text in map(str, getattr(function, "__annotations__", {}).values()):
            for word in re.findall(r"(?<![.\w])[A-Z]\w+", text):
                value = function.__globals__.get(word)
                home = getattr(value, "__module__", "") or ""
                if (
                    inspect.isclass(value)
                    and home.startswith("lakeformat")
                    and word not in {*lakeformat.__all__, *lakeformat.spark.__all__}
                ):
                    missing.add((name, word))
    assert missing == set()


@pytest.mark.parametrize("kind", [lakeformat.Table, LakehouseTable])
def test_every_public_method_has_a_manual(kind: type) -> None:
    for name in public(kind):
        function = verb(kind, name)
        said = inspect.getdoc(function) or ""
        if callable(inspect.getattr_static(kind, name)) and not name.startswith(("plan_", "to_")):
            given = list(inspect.signature(function).parameters)[1:]
            assert not given or "Args:" in said, name
        assert re.match(r"[A-Z][a-z]+ ", said), name


@pytest.mark.parametrize("kind", [lakeformat.Table, LakehouseTable, lakeformat.WriteResult, lakeformat.Scan])
def test_help_names_no_inner_module(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    names = set(re.findall(r"\blakeformat\.[a-z_]+\.\w+", text))
    wanted = {"lakeformat.merge.Merger", *(f"lakeformat.spark.{name}" for name in lakeformat.spark.__all__)}
    options = {name for name in names if re.match(r"lakeformat\.(write|storage|read|beside)\.", name)}
    assert {name for name in names - wanted - options if not name.startswith("lakeformat.spark.")} == set()


def test_exported_classes_say_where_they_are_exported() -> None:
    homes = {
        name: value.__module__
        for name in lakeformat.__all__
        if inspect.isclass(value := getattr(lakeformat, name)) or inspect.isfunction(value)
    }
    assert {name for name, home in homes.items() if home != "lakeformat"} == set()
    assert lakeformat.spark.LakehouseTable.__module__ == lakeformat.spark.read.__module__ == "lakeformat.spark"
    assert pickle.loads(pickle.dumps(lakeformat.Operation.UPSERT)) is lakeformat.Operation.UPSERT  # noqa: S301
    error = pickle.loads(pickle.dumps(lakeformat.InvalidInputError("no")))  # noqa: S301
    assert (type(error), str(error)) == (lakeformat.InvalidInputError, "no")
