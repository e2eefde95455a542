"""Wheels and sdists as users install them: each in an environment of its own, with and without PySpark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.packaging.test_extras import check_answers
from tools.build_core import build

ROOT = Path(__file__).resolve().parents[2]
#: What an environment of lakeformat-core may weigh, pip included (README.md).
CORE_MEGABYTES = 330
PROGRAM = """
import lakeformat, sys
table = lakeformat.create(sys.argv[1], {"id": "int64", "v": "string"}, record_key="id")
table.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
table.upsert([{"id": 2, "v": "c"}])
assert table.count(where="v = 'c'") == 1
assert sorted(row["v"] for row in table.to_arrow().to_pylist()) == ["a", "c"]
assert "pyspark" not in sys.modules
print(lakeformat.__file__)
"""
FLAGS = ("--quiet", "--disable-pip-version-check")

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheels and sdists of both distributions, made from the files that git tracks."""
    copy, out = tmp_path_factory.mktemp("source") / "lakeformat", tmp_path_factory.mktemp("dist")
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, files):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, copy], check=True, capture_output=True)
    build(copy, out)
    return out


def environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def run(python: Path, *words: str | Path, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *words], cwd=cwd, env=environ, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_core_brings_what_plain_python_needs_and_little_else(kind: str, built: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", *FLAGS, next(built.glob(f"lakeformat_core-{kind}")), cwd=tmp_path)
    assert str(tmp_path / "venv") in run(python, "-c", PROGRAM, tmp_path / "table", cwd=tmp_path)
    check_answers(
        run(python, ROOT / "tests" / "helpers" / "without_extras.py", tmp_path, cwd=tmp_path), "lakeformat-core"
    )
    sizes = run(Path("/usr/bin/du"), "-sm", tmp_path / "venv", cwd=tmp_path)
    assert int(sizes.split()[0]) <= CORE_MEGABYTES
    listed = {line.split("==")[0].lower() for line in run(python, "-m", "pip", "freeze", cwd=tmp_path).splitlines()}
    assert not listed & {"pyspark", "pandas", "typer", "rich", "pydantic", "thrift", "pymetastore"}


def test_lakeformat_may_be_installed_over_core_and_core_over_it(built: Path, tmp_path: Path) -> None:
    """Both have the same files: the later one replaces them, and an uninstall of one needs the other again."""
    python, pip = environment(tmp_path / "venv"), ("-m", "pip", "install", *FLAGS)
    wheels = {name: next(built.glob(f"{name}-*.whl")) for name in ("lakeformat_core", "lakeformat")}
    for at, name in enumerate(("lakeformat_core", "lakeformat", "lakeformat_core")):
        again = ("--force-reinstall", "--no-deps") if at == 2 else ()
        run(python, *pip, *again, wheels[name], cwd=tmp_path)
        run(python, "-c", PROGRAM, tmp_path / f"table-{at}", cwd=tmp_path)
    run(python, "-m", "pip", "uninstall", "--yes", "--quiet", "lakeformat_core", cwd=tmp_path)
    run(python, *pip, "--force-reinstall", "--no-deps", wheels["lakeformat"], cwd=tmp_path)
    run(python, "-c", PROGRAM, tmp_path / "table-last", cwd=tmp_path)


def test_the_wheel_brings_pyspark_and_the_command_line(built: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", *FLAGS, next(built.glob("lakeformat-*.whl")), cwd=tmp_path)
    run(python, "-c", PROGRAM, tmp_path / "table", cwd=tmp_path)
    command = python.with_name("lakeformat")
    answer = run(command, "read", tmp_path / "table", "--where", "v = 'c'", "--count", cwd=tmp_path)
    assert answer == "1\n"
    assert "4." in run(python, "-c", "import pyspark; print(pyspark.__version__)", cwd=tmp_path)
