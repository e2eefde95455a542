"""The public API: every name can be imported, is documented and has one module."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types

import pytest

import lakeformat
from lakeformat import errors


def test_exports_exist_and_are_sorted() -> None:
    assert lakeformat.__all__ == sorted(lakeformat.__all__)
    assert [name for name in lakeformat.__all__ if not hasattr(lakeformat, name)] == []
    assert lakeformat.__version__.count(".") == 2


def test_import_loads_no_optional_library() -> None:
    program = (
        "import lakeformat, sys; print({'pyspark', 'pandas', 'sqlglot', 'duckdb', 'typer', 'rich'} & {*sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


def test_no_other_name_is_public() -> None:
    ours = {
        name
        for name, value in vars(lakeformat).items()
        if getattr(value, "__module__", "").startswith("lakeformat") and not isinstance(value, types.ModuleType)
    }
    assert {name for name in ours if not name.startswith("_")} <= set(lakeformat.__all__)


def test_every_error_is_exported_and_belongs_to_the_tree() -> None:
    classes = [name for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    for name in classes:
        assert getattr(lakeformat, name) is getattr(errors, name)
        assert issubclass(getattr(errors, name), lakeformat.LakeformatError)
    drawn = errors.__doc__ or ""
    assert [name for name in classes if name not in drawn] == []


@pytest.mark.parametrize("name", [n for n in lakeformat.__all__ if not n.startswith("__")])
def test_public_names_are_documented(name: str) -> None:
    exported = getattr(lakeformat, name)
    if not inspect.isclass(exported) and not inspect.isroutine(exported):
        return  # An alias of types has no docstring of its own.
    assert inspect.getdoc(exported)
    for member, value in vars(exported).items() if inspect.isclass(exported) else ():
        if not member.startswith("_") and callable(value):
            assert inspect.getdoc(value), f"{name}.{member}"


def test_errors_are_one_line_and_of_pythons_kind() -> None:
    assert str(lakeformat.CorruptTableError("a\n  b\tc")) == "a b c"
    for error, kind in (
        (lakeformat.InvalidInputError, ValueError),
        (lakeformat.InvalidOptionError, ValueError),
        (lakeformat.SchemaMismatchError, lakeformat.InvalidInputError),
        (lakeformat.TableNotFoundError, FileNotFoundError),
        (lakeformat.LockTimeoutError, TimeoutError),
        (lakeformat.StorageError, OSError),
    ):
        assert issubclass(error, kind)


def test_nearest_names_are_offered_only_when_near() -> None:
    assert errors.nearest("amuont", ["amount", "id"]) == "; did you mean 'amount'?"
    assert errors.nearest("x", ["amount", "id"]) == ""
