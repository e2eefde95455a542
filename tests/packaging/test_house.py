"""The findings of `tools/house.py`: each rule is broken once, in a tree of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.house import (
    MODULE_LINES,
    RATCHETS,
    Module,
    long_signatures,
    options_by_text,
    places,
    problems,
    set_constants,
    too_long,
    vague_names,
    wrong_exports,
)


def module(text: str) -> Module:
    return Module("lakeformat/x.py", text, ast.parse(text))


@pytest.mark.parametrize(
    ("text", "used", "part"),
    [
        ("__all__ = ['f']\ndef f(): pass\ndef _g(): pass\n", set(), None),
        ("__all__ = ['f']\nfrom y import f\n", {"f"}, None),
        ('"""Nothing."""\n', set(), None),
        ("def f(): pass\nx = 1\n", set(), "no __all__"),
        ("__all__ = [*names]\nx = 1\n", set(), "no __all__"),
        ("__all__ = ['g']\n", set(), "names g"),
        ("__all__ = []\nclass C: pass\n", set(), "lacks C"),
        ("__all__ = []\nLIMIT = 1\n", {"LIMIT"}, "lacks LIMIT"),
        ("__all__ = []\n_LIMIT = 1\n", {"_LIMIT"}, "_LIMIT is private"),
    ],
)
def test_module_exports_are_checked(text: str, used: set[str], part: str | None) -> None:
    found = list(wrong_exports(module(text), frozenset(used)))
    assert [part in line for line in found] == [True] if part else not found


def test_module_and_function_sizes_are_checked() -> None:
    text = "def f():\n" + "    x = 1\n" * 60
    assert list(too_long(module(text), 61)) == ["lakeformat/x.py:1: f has 61 lines, more than 60"]
    assert len(list(too_long(module(text), 60))) == 2


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("patch.setattr('lakeformat.read.run.session._MOST', 1)", 1),
        ("from lakeformat.read import session\npatch.setattr(session, '_MOST', 1)", 1),
        ("import lakeformat.read as read\npatch.setattr(read.session, '_MOST', 1)", 1),
        ("import os\npatch.setattr(os, 'link', refuse)", 0),
    ],
)
def test_tests_that_set_library_constants_are_found(text: str, lines: int) -> None:
    assert len(list(set_constants(module(text)))) == lines


def test_option_look_ups_are_counted() -> None:
    assert options_by_text(module("options['hoodie.x']\nself.options[KEY]\nother['hoodie.x']\n")) == 2


def test_names_that_say_nothing_are_counted() -> None:
    text = "def f(at, of): pass\nfor each in rows: found = each\nx = [one for one in rows]\nprint(left, x.known)\n"
    assert vague_names(module(text)) == 4


def test_long_signatures_are_counted() -> None:
    most = "a, b, c, d, e, f, g"
    text = f"class C:\n  def m(self, {most}): pass\n  def n(self, {most}, *, h): pass\nasync def k(h, {most}): pass\n"
    assert long_signatures(module(text)) == 2


@pytest.mark.parametrize(
    ("path", "text", "counts"),
    [
        ("lakeformat/write/x.py", "storage.has_lock or store.storage.has_lock", (2, 0, 0, 0, 0, 0, 0)),
        ("lakeformat/storage/x.py", "storage.has_lock", (0, 0, 0, 0, 0, 0, 0)),
        ("lakeformat/write/x.py", "pa.types.is_map(of) and not pa.types.is_list(of)", (0, 2, 0, 0, 0, 0, 0)),
        ("lakeformat/arrow/x.py", "pa.types.is_map(of)", (0, 0, 0, 0, 0, 0, 0)),
        (
            "lakeformat/write/x.py",
            "config.version >= _NEW or version != 6 or to < x.config.version",
            (0, 0, 3, 0, 0, 0, 0),
        ),
        ("lakeformat/write/x.py", "version is None or version == tried", (0, 0, 0, 0, 0, 0, 0)),
        ("lakeformat/model/x.py", "version == 6", (0, 0, 0, 0, 0, 0, 0)),
        ("lakeformat/write/x.py", "index.startswith('GLOBAL_') or index == 'BUCKET'", (0, 0, 0, 2, 0, 0, 0)),
        ("lakeformat/write/x.py", "a.delete_stage()\nb.delete_stage()", (0, 0, 0, 0, 2, 0, 0)),
        ("lakeformat/transaction/x.py", "self.delete_stage()", (0, 0, 0, 0, 0, 0, 0)),
        ("lakeformat/services/x.py", "remove_markers(s, t)\ntake_back_deltacommit(s, t)", (0, 0, 0, 0, 0, 2, 0)),
        ("lakeformat/transaction/undo/traces.py", "remove_markers(s, t)", (0, 0, 0, 0, 0, 0, 0)),
        ("lakeformat/spark/x.py", "run_services_after_write(result, context)", (0, 0, 0, 0, 0, 0, 1)),
        ("tools/x.py", "version == 6", (0, 0, 0, 0, 0, 0, 0)),
    ],
)
def test_places_that_know_a_fact_are_counted(path: str, text: str, counts: tuple[int, ...]) -> None:
    whole = [Module(path, text, ast.parse(text))]
    assert tuple(places(ratchet, whole) for ratchet in RATCHETS) == counts


def test_problems_of_a_whole_folder_are_listed(tmp_path: Path) -> None:
    for folder in ("lakeformat", "pyspark_lakehouse", "tools", "tests", "benchmarks"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lakeformat" / "x.py").write_text("x = 1\n" * (MODULE_LINES + 1))
    (tmp_path / "tests" / "x.py").write_text("# Whoever reads this.\n")
    (tmp_path / "benchmarks" / "x.py").write_text('"""As far as it goes."""\n')
    parts = (f"{MODULE_LINES + 1} lines", "no __all__", "instead of 'Whoever'", "instead of 'As far as'")
    found = list(problems(tmp_path))
    assert [part in line for part, line in zip(parts, found, strict=True)] == [True] * len(parts)
