"""Draw the pictures in ``docs/pictures``: the work of an upsert, and a table's layout before and after clustering.

Usage: ``python tools/pictures.py``. The tables are created in a temporary folder from random numbers with a fixed seed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import lakeformat

__all__ = ["funnel", "layouts", "main"]

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
#: Table options by which a small table consists of many files.
_SMALL_FILES: Final[dict[str, Any]] = {"hoodie.parquet.small.file.limit": 0, "hoodie.parquet.max.file.size": 300_000}
_DOTS_PER_INCH: Final = 96


def funnel(path: Path, picture: Path) -> None:
    """Draw how an upsert of 1,000 rows finds the files that contain its keys, in a table of 240,000 flights.

    The bars show how many pairs of a key and a file each step of the search leaves for the next step. Each month is a
    partition whose files have overlapping key ranges, as after daily loads.
    """
    rng, count = np.random.default_rng(7), 240_000
    number = np.arange(count)
    month = number * 12 // count + 1
    rows = pa.table({"flight_id": number, "month": month, "delay": rng.normal(8, 20, count)})
    table = lakeformat.create(path, rows.schema, record_key="flight_id", partition_by="month", **_SMALL_FILES)
    for half in (number * 24 // count % 2 == 0, number * 24 // count % 2 == 1):
        for load in range(4):
            table.bulk_insert(rows.filter(pa.array(half & (number % 4 == load))))
    changed = rng.choice(number[(month == 11) & (number % 4 == 1)], 900, replace=False)
    ids = np.concatenate([changed, np.arange(count, count + 100)])
    at = np.concatenate([np.full(900, 11), np.full(100, 12)])
    result = table.upsert(pa.table({"flight_id": ids, "month": at, "delay": rng.normal(8, 20, 1000)}))
    result.figure().savefig(picture, dpi=_DOTS_PER_INCH)


def layouts(path: Path, picture: Path) -> None:
    """Draw the layout of a table of taxi positions before and after clustering along Hilbert's curve."""
    rng, count = np.random.default_rng(7), 60_000
    x = np.concatenate([rng.normal(2, 1, count // 2), rng.normal(6, 2, count // 2)])
    y = np.concatenate([rng.normal(6, 1.5, count // 2), rng.normal(3, 1, count // 2)])
    rows = pa.table({"id": np.arange(count), "x": x.round(4), "y": y.round(4)}).take(rng.permutation(count))
    table = lakeformat.create(path, rows.schema, record_key="id", **_SMALL_FILES)
    for start in range(0, count, count // 40):
        table.bulk_insert(rows.slice(start, count // 40))
    before = table.layout_report(["x", "y"])
    table.cluster(["x", "y"], curve="hilbert", target_file_bytes=40_000)
    before.figure(after=table.layout_report(["x", "y"])).savefig(picture, dpi=_DOTS_PER_INCH)


def main() -> None:
    """Draw all pictures into ``docs/pictures``."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        funnel(Path(folder, "flights"), PICTURES / "funnel.png")
        layouts(Path(folder, "taxis"), PICTURES / "layout.png")


if __name__ == "__main__":
    main()
