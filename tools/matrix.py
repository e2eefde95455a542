"""Run the tests marked ``spark`` on every supported PySpark, those of frames on pandas 3 and the oldest polars.

Each PySpark answers the questions of ``tests/fixtures/spark`` again. The oldest one also runs the tests marked
``rest``; `make nightly` runs those on the newest one.

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
#: Further releases in the list of versions, and the tests that run on each: the oldest polars that pyproject.toml
#: allows, and pandas 3, which the extra ``test`` leaves out because PySpark warns of it.
OTHERS: Final = {
    "polars==1.37.0": ("tests/read/test_lazy_frames.py",),
    "pandas==3.1.1": (
        *("tests/face/test_python_face.py", "tests/face/test_names.py", "tests/read/test_versions.py"),
        *("tests/write/test_frames.py", "tests/write/test_python_values.py", "tests/write/test_foreign_types.py"),
    ),
}
#: The expression of pytest marks that selects the tests.
TESTS: Final = "spark and not interop and (recorded or not nightly)"
#: The expression for the oldest PySpark.
ALL_TESTS: Final = "spark and not interop and (recorded or rest or not nightly)"


def environment(version: str) -> Path:
    """Create or update the environment with this release, if needed. Return the path of its Python."""
    folder = ROOT / f".venv-spark-{version.replace('==', '-')}"
    python, stamp = folder / "bin" / "python", folder / ".stamp"
    project = ROOT / "pyproject.toml"
    if stamp.exists() and stamp.stat().st_mtime >= project.stat().st_mtime:
        return python
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    spark = [] if version in OTHERS else [f"pyspark=={version}"]
    subprocess.run([*pip, "--editable", ".[test]", *spark], cwd=ROOT, check=True)
    if version in OTHERS:  # In a call of its own, because pip compares it with no other requirement then.
        subprocess.run([*pip, version], cwd=ROOT, check=True)
    stamp.touch()
    return python


def run_tests(version: str) -> str:
    """Run the tests with one release. Return ``"passed"``, or a text that says what failed."""
    try:
        python = environment(version)
    except subprocess.CalledProcessError:
        return "not installed"
    # These variables may lead to the PySpark of another environment, so they are removed.
    inherited = {k: v for k, v in os.environ.items() if k not in {"SPARK_HOME", "PYTHONPATH"}}
    environ = {**inherited, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    pytest = [str(python), "-m", "pytest", "-n", "auto", "--maxprocesses", "2"]
    pytest += ["-o", f"cache_dir=.pytest_cache/spark-{version}"]
    chosen = ALL_TESTS if version == VERSIONS[0] else TESTS
    tests = ["-m", "not spark and not nightly", *OTHERS[version]] if version in OTHERS else ["-m", chosen]
    code = subprocess.run([*pytest, *tests], cwd=ROOT, env=environ, check=False).returncode
    return "passed" if code == 0 else f"failed (pytest exit code {code})"


def main() -> int:
    """Run the tests on all versions, then print one line for each. Return 1 if any version failed."""
    parser = argparse.ArgumentParser(description="Run the Spark tests on several PySpark versions.")
    parser.add_argument("versions", metavar="VERSION", nargs="*", default=[*VERSIONS, *OTHERS])
    versions: list[str] = parser.parse_args().versions
    lines: list[str] = []
    results: list[str] = []
    for version in versions:
        print(f"--- {version}", flush=True)
        started = time.monotonic()
        results.append(run_tests(version))
        lines.append(f"{version:<16} {results[-1]:<32} {time.monotonic() - started:6.0f} s")
    print("\n".join(lines))
    return 0 if all(result == "passed" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
