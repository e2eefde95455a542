"""The blocks of the page on Ray, dask, daft and ibis run with the real engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.pages import PAGES, blocks_of, needs_engines, run_page

pytestmark = pytest.mark.nightly

for name in ("ray", "dask", "daft", "ibis"):
    pytest.importorskip(name, reason="run make .venv-engines/.stamp")


@pytest.mark.parametrize("page", [page for page in PAGES if needs_engines(page)], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAFT_RUNNER", "native")  # Otherwise daft runs on Ray, because this process uses Ray.
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200 << 20)
    try:
        runnable = [block for block in blocks_of(page) if block.kind != "text"]
        assert run_page(page, tmp_path) == len(runnable)
    finally:
        ray.shutdown()
