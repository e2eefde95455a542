"""Every target of the Makefile is listed by ``make help`` and can be planned from a fresh checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = (
    *("setup", "demo", "test", "test-slow", "format", "style", "check", "interop", "bench", "jar"),
    *("test-matrix", "mutants", "durations", "nightly", "clean", "help", "docs", "dist"),
)
# The environment without the variables that an outer make passes to an inner one.
#: Without what a `make` above these tests hands down: `.ci/run` calls `make test WHOLE=1`.
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "WHOLE"))}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(folder: Path, *arguments: str) -> str:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=folder, env=ENVIRON, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_help_lists_exactly_the_targets(fresh: Path) -> None:
    listed = re.findall(r"^  make (\S+)", make(fresh), flags=re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS)


@pytest.mark.parametrize(
    ("target", "last_step"),
    [
        ("demo", r"-m lakeformat\.demo"),
        ("test", r'-m pytest -m "not slow and not interop and not nightly"'),
        ("test-slow", r'-m pytest -m "slow and not interop and not nightly"'),
        ("test WHOLE=1", r'-m pytest -m "not interop and not nightly"'),
        ("format", r"-m ruff format"),
        ("style", r"-m ruff check"),
        ("check", r"lint-imports"),
        ("interop", r'-m pytest -m "interop and not nightly" tests/interop'),
        ("bench", r"-m benchmarks"),
        ("jar", r"tools/build_jar\.py"),
        ("docs", r"-m mkdocs build"),
        ("dist", r"-m build"),
        ("test-matrix", r"tools/matrix\.py"),
        ("mutants", r"tools/mutants\.py"),
        ("durations", r"tools/durations\.py"),
        ("nightly", r"tools/nightly\.py"),
    ],
)
def test_make_in_a_fresh_checkout_makes_the_environment_first(fresh: Path, target: str, last_step: str) -> None:
    plan = make(fresh, "-n", *target.split()).splitlines()
    created = next(number for number, line in enumerate(plan) if "-m venv" in line)
    used = next(number for number, line in enumerate(plan) if re.search(last_step, line))
    assert created < used


def test_extra_is_reinstalled_only_if_the_project_changes(fresh: Path) -> None:
    (fresh / ".venv" / "bin").mkdir(parents=True)
    (fresh / ".venv" / "bin" / "python").touch()
    assert "pip install" in make(fresh, "-n", "check")
    stamp, project = fresh / ".venv" / ".stamp-check", fresh / "pyproject.toml"
    stamp.touch()
    os.utime(project, (1_000_000_000, 1_000_000_000))
    assert "pip install" not in make(fresh, "-n", "check")
    os.utime(stamp, (999_999_999, 999_999_999))
    assert "pip install" in make(fresh, "-n", "check")


def test_make_says_which_python_is_missing(fresh: Path) -> None:
    command = ["make", "--no-print-directory", "jar", "PYTHON="]
    run = subprocess.run(command, cwd=fresh, env=ENVIRON, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "no Python 3.11 or newer found" in run.stderr
