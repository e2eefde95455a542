"""The examples in docstrings, run as doctests. As on the documentation pages, ``/data/`` is the folder of the test."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.helpers.pages import ROOT

__all__ = ["SOURCES", "run_examples", "with_examples"]

SOURCES: Final = sorted((ROOT / "lakeformat").rglob("*.py"))
_FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def with_examples(*, spark: bool) -> list[Path]:
    """Return the modules of the package whose docstrings have examples, of its Spark part or of the rest."""
    found = [source for source in SOURCES if ">>> " in source.read_text(encoding="utf-8")]
    return [source for source in found if ("spark" in source.relative_to(ROOT).parts) is spark]


def run_examples(source: Path, folder: Path, names: Callable[[Path], dict[str, Any]]) -> int:
    """Run the examples of each docstring with the names of the module and the given names. Return how many ran."""
    module = importlib.import_module(".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    count = 0
    for number, found in enumerate(doctest.DocTestFinder().find(module)):
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
