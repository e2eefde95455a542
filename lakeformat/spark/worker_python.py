"""``lakeformat-python``: a Python for Spark's workers that imports PySpark compiled.

Spark puts ``pyspark.zip`` first on the path of every Python process that it starts, and Python keeps no compiled files
of what it finds in a zip. The first write of a session starts processes of four kinds; each compiles PySpark anew, for
half a second of processor time. In an installation by pip the same code lies around the zip, compiled. This program
takes such zips off ``PYTHONPATH`` and becomes the Python that it was installed for:

    PYSPARK_PYTHON=lakeformat-python python job.py
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["main", "without_zips"]

_ZIP: Final = re.compile(r"(?P<root>.+)/pyspark/python/lib/(?P<package>pyspark|py4j)(-[\w.]+-src)?\.zip")


def main() -> None:
    """Become ``python`` with the arguments given."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(without_zips(entries, sys.path))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606  No shell is wanted.


def without_zips(entries: Sequence[str], path: Sequence[str]) -> list[str]:
    """The entries of ``PYTHONPATH`` but Spark's zips whose package Python finds next in the same installation.

    Args:
        path: where Python looks after the entries.
    """
    zips = {entry: match for entry in entries if (match := _ZIP.fullmatch(entry))}
    others = [Path(place) for place in (*entries, *path) if place and place not in zips]

    def is_spare(entry: str) -> bool:
        root, package = zips[entry]["root"], zips[entry]["package"]
        found = next((place for place in others if (place / package / "__init__.py").is_file()), None)
        return found is not None and found.resolve() == Path(root).resolve()

    return [entry for entry in entries if entry not in zips or not is_spare(entry)]
