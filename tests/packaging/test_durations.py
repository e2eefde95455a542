"""What the tests cost: the measure, its budget, the cases that `make test` keeps, the list of costs, the examples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.helpers.few_cases import most_different
from tools.durations import group_by, listed

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import os
import subprocess
import sys
import time

import pytest

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture(scope="session")
def shared():
    work(0.3)

@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_with_a_shared_fixture(shared, seconds):
    work(seconds)

def test_with_a_child():
    if (child := os.fork()) == 0:
        work(0.3)
        os._exit(0)
    os.waitpid(child, 0)

@pytest.fixture(scope="session")
def server():
    busy = "import time\\nwhile time.process_time() < 0.3: pass\\nprint(1, flush=True); input()"
    shell = ["sh", "-c", f"{sys.executable} -c '{busy}' & exec sleep 60"]  # Which does not wait for its child.
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        running.stdout.readline()
        yield
        running.kill()

def test_with_a_server(server):
    pass
"""


def run_with_budget(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `TESTS` with a budget far below 0.3 seconds, because it grows on a slow machine."""
    (folder / "test_it.py").write_text(TESTS)
    plugins = ["-p", "tests.helpers.durations", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--budget", "0.02", f"--rootdir={folder}"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.budget(10)
def test_test_beyond_the_budget_fails_with_its_name(tmp_path: Path) -> None:
    done = run_with_budget(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    for name in ("test_it.py::test_with_a_shared_fixture[0.3]", "test_it.py::test_with_a_child"):
        assert f"{name} took 0.3 processor seconds, more than 0.0" in done.stdout
    recorded = json.loads((tmp_path / "build" / "durations.json").read_text())
    assert {name: round(seconds, 1) >= 0.3 for name, seconds in recorded.items()} == {
        "test_it.py::test_with_a_shared_fixture[0.0]": True,  # With the fixture.
        "test_it.py::test_with_a_shared_fixture[0.3]": True,
        "test_it.py::test_with_a_child": True,
        "test_it.py::test_with_a_server": True,
    }


@pytest.mark.budget(10)
def test_budget_grows_on_a_slow_machine(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import tests.helpers.durations as d\nd._SECONDS /= 1000\n")
    done = run_with_budget(tmp_path)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


FAMILIES = """
import pytest

@pytest.mark.nightly
@pytest.mark.parametrize("case", range(30))
def test_large(case): pass

@pytest.mark.nightly
@pytest.mark.parametrize("case", range(6))
def test_small(case): pass

@pytest.mark.parametrize("case", range(30))
def test_of_the_day(case): pass
"""


@pytest.mark.budget(20)
def test_nights_of_a_week_share_the_cases_of_a_large_family(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAMILIES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = nightly\n")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p tests.helpers.few_cases"}

    def cases(*night: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--rootdir={tmp_path}", *night]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if "::" in line]

    of_all = cases()
    assert len(of_all) == 66
    nights = [cases("--night", str(night)) for night in range(1, 8)]
    for of_night in nights:
        assert sum("test_large" in case for case in of_night) in (4, 5)
        assert set(of_all) - set(of_night) <= {case for case in of_all if "test_large" in case}
    assert sorted(case for of_night in nights for case in of_night if "test_large" in case) == sorted(
        case for case in of_all if "test_large" in case
    )


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], []),
        (["t"], ["t"]),
        (["t[a]", "t[b]"], ["t[a]", "t[b]"]),
        (["t[a]", "t[b]", "t[c]", "t[d]", "t[e]"], ["t[a]", "t[e]", "t[c]", "t[b]"]),
        (["t[1-x]", "t[1-y]", "t[1-z]", "t[2-x]", "t[2-y]", "t[2-z]"], ["t[1-x]", "t[2-z]", "t[1-y]", "t[2-x]"]),
    ],
)
def test_cases_that_are_kept_differ_most(names: list[str], chosen: list[str]) -> None:
    assert most_different(names, 4) == chosen
    assert [most_different(names, count) for count in range(4)] == [chosen[:count] for count in range(4)]


SECONDS = {
    **{f"tests/a/test_x.py::test_many[{number}]": 0.03 for number in range(6)},
    **{f"tests/a/test_x.py::test_cheap[{number}]": 0.01 for number in range(6)},
    "tests/b/test_y.py::test_long": 1.5,
    "tests/b/test_y.py::test_short": 0.5,
}


@pytest.mark.parametrize(
    ("level", "names"),
    [
        ("folder", {"tests/a": 12, "tests/b": 2}),
        ("file", {"tests/a/test_x.py": 12, "tests/b/test_y.py": 2}),
    ],
)
def test_seconds_are_grouped(level: str, names: dict[str, int]) -> None:
    assert {name: len(costs) for name, costs in group_by(SECONDS, level).items()} == names


def test_list_names_the_functions_with_many_expensive_cases_and_the_long_ones() -> None:
    assert listed(SECONDS, {}) == "0.03\ttests/a/test_x.py::test_many\n1.5\ttests/b/test_y.py::test_long\n"


def test_listed_function_with_few_cases_left_stays_in_the_list() -> None:
    """A plain run measures four cases of it, because it is in the list."""
    four = {f"tests/a/test_x.py::test_many[{number}]": 0.05 for number in range(4)}
    former = {"tests/a/test_x.py::test_many": "0.03", "tests/c/test_z.py::test_not_run": "0.2"}
    assert listed(four, former) == "0.05\ttests/a/test_x.py::test_many\n0.2\ttests/c/test_z.py::test_not_run\n"


@pytest.mark.parametrize("profile", ["look", "ci", "whole", "nightly"])
def test_examples_follow_the_seed_in_a_ci_too(profile: str) -> None:
    """Where Hypothesis finds the variable CI, its own default draws the same examples whatever the seed is."""
    assert not settings.get_profile(profile).derandomize
