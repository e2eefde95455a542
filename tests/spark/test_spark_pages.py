"""Pages of the documentation that use Spark, and examples in docstrings of its part, run on one session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakeformat
from lakeformat.spark import LakehouseTable, each_batch
from tests.helpers.docstrings import run_examples, with_examples
from tests.helpers.pages import PAGES, blocks_of, flights_of, needs_spark, run_page

pytestmark = pytest.mark.spark

#: The pages that a newcomer reads first. The others take longer.
_FIRST = {"README", "quickstart-spark"}
_PAGES = [
    pytest.param(page, id=page.stem, marks=[] if page.stem in _FIRST else [pytest.mark.slow])
    for page in PAGES
    if needs_spark(page)
]


@pytest.mark.parametrize("page", _PAGES)
def test_the_blocks_of_a_page_run(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runnable = [block for block in blocks_of(page) if block.kind != "text"]
    assert run_page(page, tmp_path, spark) == len(runnable)


@pytest.mark.slow
@pytest.mark.parametrize("source", with_examples(spark=True), ids=lambda source: source.stem)
def test_the_examples_in_docstrings_run(
    source: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(folder: Path) -> dict[str, Any]:
        given = flights_of(folder, spark)
        frames = {f"of-{name}": given["flights"].where(f"carrier = '{name}'") for name in ("AA", "UA")}
        stream = spark.readStream.format("lakehouse").load(given["path"])
        counts = stream.groupBy("carrier").count()
        assert lakeformat.spark.each_batch is each_batch  # The function, not its module.
        used = {"lakeformat": lakeformat, "LakehouseTable": LakehouseTable, "ThreadPoolExecutor": ThreadPoolExecutor}
        return {**given, **used, "spark": spark, "frames": frames, "counts": counts}

    monkeypatch.chdir(tmp_path)
    assert run_examples(source, tmp_path, names) > 0
