"""Every block of the README and the documentation runs; a block that cannot run is marked as text."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from tests.helpers.pages import KINDS, PAGES, ROOT, blocks_of, needs_engines, needs_spark, run_page

PLAIN = [page for page in PAGES if not needs_spark(page) and not needs_engines(page)]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.NOTSET, "lakeformat")  # A page changes the level; pytest restores it after the test.
    runnable = [block for block in blocks_of(page) if block.kind != "text"]
    assert run_page(page, tmp_path) == len(runnable)


def test_blocks_are_of_a_kind_that_runs_or_of_text() -> None:
    found = {(page.name, block.kind) for page in PAGES for block in blocks_of(page)}
    assert {(page, kind) for page, kind in found if kind not in KINDS} == set()
    fences = sum(page.read_text(encoding="utf-8").count("\n```") for page in PAGES)
    seen = sum(block.kind not in {"run", "prelude"} for page in PAGES for block in blocks_of(page))
    assert fences == 2 * seen


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_benchmarks_begin_with_the_figures_of_the_readme() -> None:
    first, readme = (
        re.findall(r"^\| ([^|]*[a-z][^|]*) \|(( [*\d.]+ \|){6})$", page.read_text(encoding="utf-8"), re.MULTILINE)
        for page in (ROOT / "docs" / "benchmarks.md", ROOT / "README.md")
    )
    assert len(readme) == 5
    assert [(step, figures.replace("*", "")) for step, figures, _ in first[:5]] == [row[:2] for row in readme]


def test_links_between_pages_lead_somewhere() -> None:
    lost = [
        f"{page.name}: {path}#{anchor}"
        for page in PAGES
        for path, anchor in _LINK.findall(page.read_text(encoding="utf-8"))
        if not _leads(page, path, anchor)
    ]
    assert lost == []


def _leads(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    if not target.exists():
        return False
    headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
    slugs = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
    return not anchor or anchor in slugs


def test_every_page_is_in_the_sites_contents() -> None:
    config = (ROOT / "tools" / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f": {page.name}" not in config] == []
