"""``lakeformat-python``: a command that starts Python for Spark's workers so that they import PySpark faster.

Spark puts ``pyspark.zip`` first on the import path of every Python process that it starts, and Python does not cache
the compiled modules of a zip file. The first write of a session starts several such processes; each compiles PySpark
again, which takes half a second of processor time. PySpark installed by pip has the same modules unpacked beside the
zip, where Python caches them. This command removes such zips from ``PYTHONPATH`` and replaces itself by the Python that
it was installed for:

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
    """Replace this process by Python with the arguments of the command line and the shortened ``PYTHONPATH``."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(without_zips(entries, sys.path))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606  No shell is wanted.


def without_zips(entries: Sequence[str], path: Sequence[str]) -> list[str]:
    """Return the entries of ``PYTHONPATH`` without zips of Spark that are not needed.

    A zip is not needed if, without it, Python would import its package from the same installation of PySpark.

    Args:
        entries: the entries of ``PYTHONPATH``.
        path: the folders that Python searches after the entries.
    """
    zips = {entry: match for entry in entries if (match := _ZIP.fullmatch(entry))}
    others = [Path(place) for place in (*entries, *path) if place and place not in zips]

    def is_spare(entry: str) -> bool:
        root, package = zips[entry]["root"], zips[entry]["package"]
        place_found = next((place for place in others if (place / package / "__init__.py").is_file()), None)
        return place_found is not None and place_found.resolve() == Path(root).resolve()

    return [entry for entry in entries if entry not in zips or not is_spare(entry)]
