"""Run the tests marked ``spark`` on every supported PySpark, each in its own environment.

Usage: ``python tools/matrix.py [VERSION ...]``. The environment of a version is ``.venv-spark-<version>`` in the
project's root. It is created once, and its packages are installed again if pyproject.toml has changed. Versions run one
after the other. The last lines of the output show the result of each version. The exit code is 1 if any failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VERSIONS: Final = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
#: The expression of pytest marks that selects the tests.
TESTS: Final = "spark and not interop and not nightly"


def environment(version: str) -> Path:
    """Create or update the environment with this PySpark version, if needed. Return the path of its Python."""
    folder = ROOT / f".venv-spark-{version}"
    python, stamp = folder / "bin" / "python", folder / ".stamp"
    project = ROOT / "pyproject.toml"
    if stamp.exists() and stamp.stat().st_mtime >= project.stat().st_mtime:
        return python
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--editable", ".[test]", f"pyspark=={version}"], cwd=ROOT, check=True)
    stamp.touch()
    return python


def run_tests(version: str) -> str:
    """Run the tests with one PySpark version. Return ``"passed"``, or a text that says what failed."""
    try:
        python = environment(version)
    except subprocess.CalledProcessError:
        return "not installed"
    # These variables may lead to the PySpark of another environment, so they are removed.
    inherited = {k: v for k, v in os.environ.items() if k not in {"SPARK_HOME", "PYTHONPATH"}}
    environ = {**inherited, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    pytest = [str(python), "-m", "pytest", "-n", "auto", "--maxprocesses", "2"]
    pytest += ["-o", f"cache_dir=.pytest_cache/spark-{version}"]
    code = subprocess.run([*pytest, "-m", TESTS], cwd=ROOT, env=environ, check=False).returncode
    return "passed" if code == 0 else f"failed (pytest exit code {code})"


def main() -> int:
    """Run the tests on all versions, then print one line for each. Return 1 if any version failed."""
    parser = argparse.ArgumentParser(description="Run the Spark tests on several PySpark versions.")
    parser.add_argument("versions", metavar="VERSION", nargs="*", default=list(VERSIONS))
    versions: list[str] = parser.parse_args().versions
    lines: list[str] = []
    results: list[str] = []
    for version in versions:
        print(f"--- PySpark {version}", flush=True)
        started = time.monotonic()
        results.append(run_tests(version))
        lines.append(f"PySpark {version:<8} {results[-1]:<32} {time.monotonic() - started:6.0f} s")
    print("\n".join(lines))
    return 0 if all(result == "passed" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
