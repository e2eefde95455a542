"""Wheel and sdist as users install them: each in an environment of its own, with and without PySpark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The dependencies to install beside a cluster's own Spark, as in docs/spark-cluster.md.
BESIDE = ("pyarrow", "numpy", "fsspec", "mmh3", "fastavro")
PROGRAM = """
import lakeformat, sys
table = lakeformat.create(sys.argv[1], {"id": "int64", "v": "string"}, record_key="id")
table.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
table.upsert([{"id": 2, "v": "c"}])
assert sorted(row["v"] for row in table.to_arrow().to_pylist()) == ["a", "c"]
assert "pyspark" not in sys.modules
print(lakeformat.__file__)
"""
FLAGS = ("--quiet", "--disable-pip-version-check")

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with wheel and sdist, made from the files that git tracks."""
    copy, out = tmp_path_factory.mktemp("source") / "lakeformat", tmp_path_factory.mktemp("dist")
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, files):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, copy], check=True, capture_output=True)
    return out


def environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def run(python: Path, *words: str | Path, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *words], cwd=cwd, env=environ, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_distribution_works_without_pyspark(kind: str, built: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", *FLAGS, "--no-deps", next(built.glob(kind)), cwd=tmp_path)
    run(python, "-m", "pip", "install", *FLAGS, *BESIDE, cwd=tmp_path)
    assert str(tmp_path / "venv") in run(python, "-c", PROGRAM, tmp_path / "table", cwd=tmp_path)


def test_the_wheel_brings_pyspark_and_the_command_line(built: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", *FLAGS, next(built.glob("*.whl")), cwd=tmp_path)
    run(python, "-c", PROGRAM, tmp_path / "table", cwd=tmp_path)
    command = python.with_name("lakeformat")
    answer = run(command, "read", tmp_path / "table", "--where", "v = 'c'", "--count", cwd=tmp_path)
    assert answer == "1\n"
    assert "4." in run(python, "-c", "import pyspark; print(pyspark.__version__)", cwd=tmp_path)
