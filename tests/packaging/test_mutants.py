"""`tools/mutants.py`: what it changes, what it says of a small project, and the list of survivors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants import Entry, Result, judge, read_list, update, write_list
from tools.mutations import find_mutants

ROOT = Path(__file__).resolve().parents[2]


def changes(body: str) -> list[str]:
    text = f"def f(a, b):\n    {body}\n"
    return [mutant.change for mutant in find_mutants("m.py", text)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", ["return [a < b to None]", "a [< to <=] b", "a [< to >=] b"]),
        ("x = a in b", ["a [ to not ]in b"]),
        ("x = a and not b", ["[a and (not b) to a]", "[a and (not b) to not b]", "a and [(not b) to b]"]),
        ("x = a + 1", ["a [+ to -] 1", "a + [1 to 2]"]),
        ("x = a + 'text'", []),
        ("x = min(a, key=True)", ["[min to max](a, key=True)", "[True to False]"]),
        ("a.b = 1", ["[a.b = 1 to pass]", "[1 to 2]"]),
        ("a.add(b)", ["[a.add(b) to pass]"]),
        ("_LOG.info(1)", []),
        ("'A docstring.'", []),
        ("raise ValueError(a + b)", []),
        ("x = f'{a + b}'", []),
        ("x: 1 + 1 = zip(a, b, strict=True)", []),
        ("if a: pass", ["[ to not ]a"]),
        ("x = [c for c in a if c]", ["[c to True]"]),
        ("a -= b; a -= b", ["a [- to +]= b", "a [- to +]= b #2"]),
    ],
)
def test_changes_of_a_statement_are_these(body: str, expected: list[str]) -> None:
    assert sorted(changes(body)) == sorted(expected)


def test_pictures_decorators_defaults_and_fields_of_classes_stay() -> None:
    text = "def _draw(a): return a + 1\nclass C:\n    x = 1\n    @g(1)\n    def f(self, a=1): pass\n"
    assert not find_mutants("m.py", text)


CODE = """\
from functools import cache
LIMIT = 3

class Box:
    @property
    def size(self):
        return LIMIT

@cache
def clip(number):
    if number > LIMIT:
        return LIMIT
    return number

def count(number):
    while number > 0:
        number -= 1
    return number

def unused(number):
    return number + 1
"""
TESTS = """\
from lakes.code import Box, clip, count

def test_clip():
    assert (clip(2), clip(4), Box().size) == (2, 3, 3)

def test_count():
    assert count(5) == 0

def test_that_fails():
    assert clip(1) == 0
"""


def test_survivors_of_a_small_project_are_found(tmp_path: Path) -> None:
    for name, text in {"lakes/code.py": CODE, "tests/test_code.py": TESTS, "pytest.ini": "[pytest]\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    program = (
        "import json, sys; from pathlib import Path; from dataclasses import asdict\n"
        f"root = Path({str(tmp_path)!r}); sys.path[:0] = [str(root), {str(ROOT)!r}]\n"
        "from tools.mutants import run_group, find_mutants\n"
        "mutants = find_mutants('lakes/code.py', (root / 'lakes/code.py').read_text())\n"
        "found = run_group(root, ('test_code.py',), mutants, 2, 20)\n"
        "print('FOUND' + json.dumps({module: asdict(result) for module, result in found.items()}))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "FOUND" in run.stdout, run.stdout + run.stderr
    found = json.loads(run.stdout.rpartition("FOUND")[2])["lakes/code.py"]
    # `>=` is equal where both answers are 3; without an end, `count` takes more than its processor time.
    assert sorted(found["survived"]) == [
        "clip: number [> to >=] LIMIT",
        "unused: number + [1 to 2]",
        "unused: number [+ to -] 1",
        "unused: return [number + 1 to None]",
    ]
    caught = {"(module): [3 to 4]", "Box.size: return [LIMIT to None]", "count: number [- to +]= 1"}
    assert caught <= set(found["caught"])


LISTED = """\
lakeformat/a.py
  = the values are equal
    f: a [< to <=] b
    g: [1 to 2]
  ! costs a server
    h: [f() to pass]
"""


def test_list_is_read_and_written() -> None:
    listed = read_list(LISTED)
    assert listed["lakeformat/a.py"]["g: [1 to 2]"] == Entry("=", "the values are equal")
    assert read_list(write_list(listed)) == listed
    assert write_list(listed).endswith(LISTED)


def test_list_is_updated_with_what_was_run() -> None:
    listed = read_list(LISTED)
    names = {"g: [1 to 2]", "h: [f() to pass]", "k: [1 to 2]"}
    results = {"lakeformat/a.py": Result(["h: [f() to pass]"], ["k: [1 to 2]"])}
    changed = update(listed, {"lakeformat/a.py": names}, results)
    assert changed == {
        "lakeformat/a.py": {"g: [1 to 2]": Entry("=", "the values are equal"), "k: [1 to 2]": Entry("?", "")}
    }


@pytest.mark.parametrize(
    ("caught", "survived", "problems"),
    [
        (9, ["h: [f() to pass]"], []),
        (8, ["h: [f() to pass]"], ["88.9%"]),
        (0, ["f: a [< to <=] b", "g: [1 to 2]"], []),
        (99, ["k: [1 to 2]"], ["1 survivors have no reason"]),
    ],
)
def test_room_is_judged_by_its_share_and_by_the_list(caught: int, survived: list[str], problems: list[str]) -> None:
    results = {"lakeformat/a.py": Result(["x"] * caught, survived)}
    found = list(judge("a", results, read_list(LISTED)))
    assert len(found) == len(problems)
    assert all(part in line for part, line in zip(problems, found, strict=True))


@pytest.mark.parametrize(
    ("caught", "survived", "problems"),
    [
        (99, ["k: [1 to 2]"], []),
        (85, [f"new {number}" for number in range(15)], []),
        (83, [f"new {number}" for number in range(17)], ["83.0%"]),
        (850, [f"new {number}" for number in range(150)], ["85.0%"]),
    ],
)
def test_sample_of_a_room_is_judged_by_its_share_with_the_error_of_a_sample(
    caught: int, survived: list[str], problems: list[str]
) -> None:
    results = {"lakeformat/a.py": Result(["x"] * caught, survived)}
    found = list(judge("a", results, read_list(LISTED), is_sample=True))
    assert len(found) == len(problems)
    assert all(part in line for part, line in zip(problems, found, strict=True))
