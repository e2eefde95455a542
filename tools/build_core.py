"""Build the distribution ``lakeformat-core``: the code of ``lakeformat`` with fewer dependencies.

Usage: ``python tools/build_core.py [OUTDIR]`` (default ``dist``). Wheel and sdist are built of a copy of the sources.
In its pyproject.toml the name is another, and the dependencies that the extras of `LEFT_OUT` list are removed. So
``lakeformat-core[spark,pandas,cli]`` needs the same packages as ``lakeformat``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import tomllib

ROOT: Final = Path(__file__).resolve().parent.parent
CORE: Final = "lakeformat-core"
#: The extras whose requirements are dependencies of ``lakeformat`` and not of ``lakeformat-core``.
LEFT_OUT: Final = ("spark", "pandas", "cli")
SOURCES: Final = ("README.md", "LICENSE", "lakeformat", "pyspark_lakehouse")
_DEPENDENCIES: Final = re.compile(r"^dependencies = \[\n.*?^\]\n", re.MULTILINE | re.DOTALL)


def core_project(text: str) -> str:
    """Change the text of lakeformat's pyproject.toml to that of lakeformat-core.

    Raises:
        ValueError: a requirement of an extra of `LEFT_OUT` is not among the dependencies.
    """
    project = tomllib.loads(text)["project"]
    left_out = {each for extra in LEFT_OUT for each in project["optional-dependencies"][extra]}
    if unknown := left_out - set(project["dependencies"]):
        raise ValueError(f"pyproject.toml: {', '.join(sorted(unknown))} must be in dependencies, too")
    kept = [each for each in project["dependencies"] if each not in left_out]
    lines = "".join(f'  "{each}",\n' for each in kept)
    text = _DEPENDENCIES.sub(f"dependencies = [\n{lines}]\n", text, count=1)
    return text.replace('name = "lakeformat"', f'name = "{CORE}"', 1).replace('"lakeformat[', f'"{CORE}[')


def build(root: Path, out: Path) -> None:
    """Build wheel and sdist of ``lakeformat-core`` from the sources under ``root``, and put them into ``out``."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in SOURCES:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / name, copy / name)
        text = (root / "pyproject.toml").read_text(encoding="utf-8")
        (copy / "pyproject.toml").write_text(core_project(text), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "build", "--outdir", out, copy], check=True)


def main() -> None:
    """Build ``lakeformat-core``."""
    parser = argparse.ArgumentParser(description="Build wheel and sdist of lakeformat-core.")
    parser.add_argument("out", metavar="OUTDIR", nargs="?", type=Path, default=ROOT / "dist")
    build(ROOT, parser.parse_args().out.resolve())


if __name__ == "__main__":
    main()
