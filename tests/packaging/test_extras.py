"""The extras: what asks for one that is missing names the line that installs it; lakeformat-core leaves some out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from tools.build_core import LEFT_OUT, ROOT, core_project

PROGRAM = ROOT / "tests" / "helpers" / "without_extras.py"
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]
#: Extras for work on lakeformat itself.
OWN = {"test", "check", "docs", "dist", "bench", "engines"}
#: Extras that nothing asks for: without tqdm there are no bars; users start OpenTelemetry, ibis and Sail themselves.
NOT_ASKED_FOR = {"progress", "otel", "ibis", "sail", "all"}
#: Asked for by a program of its own (test_readme.py).
ELSEWHERE = {"demo"}
#: Packages that the extras above install.
OPTIONAL = (
    *("obstore", "gcsfs", "kazoo", "boto3", "botocore", "xxhash", "pymetastore", "thrift", "matplotlib", "duckdb"),
    *("polars", "pandas", "ray", "dask", "daft", "pyspark", "typer", "rich", "tqdm", "opentelemetry"),
    *("deltalake", "pyiceberg"),
)


def check_answers(said: str, distribution: str) -> None:
    """Check that the output of ``without_extras.py`` names the right line for each extra."""
    *lines, command, last = said.splitlines()
    asked = set()
    for line in lines:
        extra, kind, message = line.split("\t")
        cure = "run pip install 'pyspark>=4.0'" if extra == "spark" else f"; run: pip install '{distribution}[{extra}]'"
        assert cure in message, line
        assert kind in {"StorageError", "InvalidOptionError", "InvalidInputError", "ImportError"}, line
        asked.add(extra)
    assert asked == set(PROJECT["optional-dependencies"]) - OWN - NOT_ASKED_FOR - ELSEWHERE - {"cli"}
    assert command == f"lakeformat: the command line needs typer and rich; run: pip install '{distribution}[cli]'"
    assert last == "cli\t2"


@pytest.mark.budget(20)
def test_a_missing_extra_is_answered_by_its_install_line(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path, *OPTIONAL], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    check_answers(done.stdout, "lakeformat")


def test_every_optional_package_is_hidden_from_that_program() -> None:
    named = {re.match(r"[\w-]+", each)[0] for each in PROJECT["dependencies"]}  # type: ignore[index]
    for extra in set(PROJECT["optional-dependencies"]) - OWN - ELSEWHERE - {"ibis", "sail", "all"}:
        packages = {re.match(r"[\w-]+", each)[0] for each in PROJECT["optional-dependencies"][extra]}  # type: ignore[index]
        assert packages - {"opentelemetry-sdk"} <= {*OPTIONAL, *named}, extra


def test_core_is_lakeformat_without_three_extras() -> None:
    core = tomllib.loads(core_project(PYPROJECT))
    left_out = {each for extra in LEFT_OUT for each in PROJECT["optional-dependencies"][extra]}
    assert core["project"].pop("name") == "lakeformat-core"
    assert {*core["project"].pop("dependencies"), *left_out} == {*PROJECT["dependencies"]}
    assert left_out == {"pyspark>=4.0", "pandas>=2.2", "typer>=0.12", "rich>=13"}
    extras = core["project"].pop("optional-dependencies")
    renamed = str(PROJECT["optional-dependencies"]).replace("lakeformat[", "lakeformat-core[")
    assert str(extras) == renamed
    whole = tomllib.loads(PYPROJECT)
    for each in ("name", "dependencies", "optional-dependencies"):
        whole["project"].pop(each)
    assert core == whole


def test_an_extra_that_core_leaves_out_must_be_a_dependency_of_lakeformat() -> None:
    with pytest.raises(ValueError, match=r"pandas>=2\.2 must be in dependencies"):
        core_project(PYPROJECT.replace('  "pandas>=2.2",\n', ""))
