"""The examples in docstrings run on the flights of the documentation pages. None contains a doctest directive.

Those of ``lakeformat.spark`` run in ``tests/spark/test_spark_pages.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeformat
from tests.helpers.docstrings import SOURCES, run_examples, with_examples
from tests.helpers.pages import flights_of


def test_no_docstring_example_is_skipped() -> None:
    assert [source.name for source in SOURCES if "doctest:" in source.read_text(encoding="utf-8")] == []


def names(folder: Path) -> dict[str, Any]:
    given = flights_of(folder, None)
    table = lakeformat.create(
        folder / "flights", given["schema"], record_key="flight_id", partition_by="month", ordering="updated_at"
    )
    table.bulk_insert(given["batches"])
    return {**given, "lakeformat": lakeformat, "table": table}


@pytest.mark.parametrize("source", with_examples(spark=False), ids=lambda source: source.stem)
def test_docstring_examples_run(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_examples(source, tmp_path, names) > 0
