"""The examples in docstrings, run as doctests. As on the documentation pages, ``/data/`` is the folder of the test."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.helpers.pages import ROOT

__all__ = ["SOURCES", "run_examples", "with_examples"]

SOURCES: Final = sorted((ROOT / "lakeformat").rglob("*.py"))
_FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class _Finder(doctest.DocTestFinder):
    """A finder that includes objects of the module whose ``__module__`` is the package that exports them."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        parsed = ast.parse(source.read_text(encoding="utf-8"))
        self._defined = {each.name for each in parsed.body if isinstance(each, ast.ClassDef)}

    def _from_module(self, module: Any, object: Any) -> bool:  # noqa: A002  The name of doctest.
        if inspect.isclass(object):
            return object.__name__ in self._defined
        if inspect.isfunction(object):
            return inspect.unwrap(object).__globals__ is module.__dict__
        return bool(super()._from_module(module, object))  # type: ignore[misc]


def with_examples(*, spark: bool) -> list[Path]:
    """Return the modules of the package whose docstrings have examples, of its Spark part or of the rest."""
    found = [source for source in SOURCES if ">>> " in source.read_text(encoding="utf-8")]
    return [source for source in found if ("spark" in source.relative_to(ROOT).parts) is spark]


def run_examples(source: Path, folder: Path, names: Callable[[Path], dict[str, Any]]) -> int:
    """Run the examples of each docstring with the names of the module and the given names. Return how many ran."""
    module = importlib.import_module(".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    count = 0
    for number, found in enumerate(_Finder(source).find(module)):
        if not found.examples:
            continue
        here = folder / str(number)
        here.mkdir()
        for example in found.examples:
            example.source = example.source.replace("/data/", f"{here}/")
        found.globs.update(names(here))
        said: list[str] = []
        failed = doctest.DocTestRunner(optionflags=_FLAGS).run(found, out=said.append).failed
        assert failed == 0, "".join(said)
        count += len(found.examples)
    return count
