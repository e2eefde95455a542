"""The fixture tables: zips of tables that Hudi wrote, each beside a JSON file with the rows that Hudi reads."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

FIXTURES = Path(os.environ.get("LAKEFORMAT_FIXTURES") or Path(__file__).resolve().parents[1] / "fixtures")


def names(collection: str) -> list[str]:
    """Return the sorted names (``"hudi_v6/cow_all_types"``) of the tables in one folder of the fixtures."""
    return sorted(f"{collection}/{file.stem}" for file in (FIXTURES / collection).glob("*.zip"))


def unpack(name: str, into: Path) -> Path:
    """Extract table ``name`` (``"hudi_v6/cow_all_types"``) below ``into``. Return the folder of the table."""
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        archive.extractall(into)
    return into / Path(name).name


def read_expectations(name: str) -> dict[str, Any]:
    """Return the JSON beside the zip: properties, writes, instants and the rows of each."""
    content: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    return content
