"""Pages of the documentation that use Spark run as they stand, on one session."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.helpers.pages import PAGES, blocks_of, needs_spark, run_page

pytestmark = pytest.mark.spark

#: What a newcomer reads first; the others take longer.
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
