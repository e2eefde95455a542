"""Every relative link, anchor and path that a page of the project names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.pages import ROOT
from tools.decisions import FOLDER, PAGES, index, slug

NAMES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
FOLDERS = ("lakeformat", "tests", "tools", "docs", "benchmarks", "pyspark_lakehouse", ".ci", ".github")
DOCUMENTS = [
    *(ROOT / name for name in NAMES),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "lakeformat").rglob("README.md")),
    *sorted((ROOT / "tests").rglob("README.md")),
]
_FENCED = re.compile(r"^ *```.*?^ *```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"`([^`\s]+)`")
_PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*|[A-Z]{{3,}}\.md")
_MODULE = re.compile(r"[\w/*-]+\.py")
_NAME = re.compile(r"(?<![\w./-])[A-Za-z_]\w*(?:\.\w+)*(?:\(.*\))?")
_OURS = re.compile(r"_[A-Z_]+|\w+_\w+|[A-Z]\w*[a-z]\w*[A-Z]\w*")
#: Names in the design pages that are not in our sources.
FOREIGN = {"DataSourceStreamArrowWriter", "UnboundLocalError"}
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def prose_of(page: Path) -> str:
    """Return the text of a page without its blocks of code and hidden blocks."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def broken_links(page: Path) -> Iterator[str]:
    """Yield the links of a page that have no target."""
    for path, anchor in _LINK.findall(prose_of(page)):
        target = page.parent / path if path else page
        if not target.exists():
            yield path
        elif anchor and anchor not in {slug(heading) for heading in _HEADING.findall(prose_of(target))}:
            yield f"{path}#{anchor}"


def missing_paths(page: Path) -> Iterator[str]:
    """Yield the paths in code spans of a page that do not exist.

    A path that begins with a folder of the project is looked for in the project's root. In the README of a room or of
    the tests, the name of a module is also looked for in the page's own folder and in ``lakeformat/``.
    """
    is_of_room = page.name == "README.md" and page.parent.relative_to(ROOT).parts[:1] in {("lakeformat",), ("tests",)}
    for word in _CODE.findall(prose_of(page)):
        if _PATH.fullmatch(word):
            places = [ROOT]
        elif is_of_room and _MODULE.fullmatch(word):
            places = [page.parent, ROOT, ROOT / "lakeformat"]
        else:
            continue
        if not any(any(place.glob(word.rstrip("/"))) for place in places):
            yield word


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_page_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_named_in_page_exist(page: Path) -> None:
    assert list(missing_paths(page)) == []


def test_names_in_design_pages_are_in_the_sources() -> None:
    files = [ROOT / "conftest.py", *(path for name in FOLDERS for path in (ROOT / name).rglob("*.py"))]
    known = {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    unknown = {
        (page.name, part)
        for page in (ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "design").glob("*.md")))
        for span in re.findall(r"`([^`]+)`", prose_of(page))
        if _NAME.fullmatch(span)
        for part in span.partition("(")[0].split(".")
        if _OURS.fullmatch(part) and part not in known | FOREIGN
    }
    assert unknown == set()


def test_index_of_decisions_lists_every_page() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} == {*PAGES, "README"}
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == index(), "run: python tools/decisions.py"


def test_numbers_of_decisions_are_unique() -> None:
    numbers = [
        int(number)
        for page in PAGES
        for number in re.findall(r"^## (\d+)\. ", (FOLDER / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(numbers) == len(set(numbers))
    assert numbers


def test_root_holds_only_the_pages_of_the_plan() -> None:
    assert {page.name for page in ROOT.glob("*.md")} == set(NAMES)


def test_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= 8_192
