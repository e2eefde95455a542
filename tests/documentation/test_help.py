"""The pages answer what people look for: each error by its name, each word that was typed into the search box."""

from __future__ import annotations

import re

import pytest

import lakeformat
from lakeformat import errors
from lakeformat.cli.output import EXIT_CODES
from tests.helpers.pages import ROOT

DOCS = ROOT / "docs"
TROUBLES = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
CLASSES = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error") and name != "LakeformatError"]
#: Texts of Spark and pip, as they come on the terminal.
TEXTS = (
    *("JAVA_GATEWAY_EXITED", "Java gateway process exited", "DATA_SOURCE_NOT_FOUND", "DATA_SOURCE_ALREADY_EXISTS"),
    *("UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY", "_hoodie_commit_time cannot be resolved", "FILE_NOT_EXIST"),
    *("PYTHON_DATA_SOURCE_ERROR", "No module named 'pyspark'", "No matching distribution found for lakeformat"),
    *("needs obstore", "needs kazoo", "metastore.uris", "UnsupportedClassVersionError", "PYTHON_VERSION_MISMATCH"),
)
#: What people typed, and a page that must be among the answers.
TYPED = {
    "schema evolution": "recipes.md", "troubleshoot": "troubleshooting.md", "FAQ": "recipes.md", "audit": "recipes.md",
    "kazoo": "install.md", "uninstall": "install.md", "hive-site": "troubleshooting.md", "who changed": "recipes.md",
    "JAVA_GATEWAY": "troubleshooting.md", "undo": "recipes.md", "pandas 3": "install.md",
    "without PySpark": "install.md",
    "from a checkout": "install.md", "metastore.uris": "catalogs.md", "DATA_SOURCE_NOT_FOUND": "troubleshooting.md",
}  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_class_is_explained_with_its_exit_code(kind: type[Exception]) -> None:
    row = re.search(rf"^\| `{kind.__name__}` \| (\d+) \|[^|]+\|[^|]{{20,}}\|$", TROUBLES, re.MULTILINE)
    assert row is not None
    assert int(row[1]) == next(code for code, (kinds, _) in EXIT_CODES.items() if issubclass(kind, kinds))


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_spark_and_pip_are_explained(text: str) -> None:
    rows = [line for line in TROUBLES.splitlines() if line.startswith("|") and text in line.split("|")[1]]
    assert len(rows) == 1


@pytest.mark.parametrize("typed", TYPED)
def test_the_search_finds_what_people_type(typed: str) -> None:
    """The site's search looks for words in the pages' texts."""
    found = {page.name for page in DOCS.glob("*.md") if typed.lower() in page.read_text(encoding="utf-8").lower()}
    assert TYPED[typed] in found


def test_the_api_page_begins_with_create_open_and_upsert() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    first = re.findall(r"^::: (\S+)$", page, re.MULTILINE)[:3]
    assert first == ["lakeformat.table.create", "lakeformat.table.open_table", "lakeformat.table.Table"]
    listed = re.search(r"members: \[(.*?)\]", page, re.DOTALL)
    assert listed is not None
    members = re.findall(r"\w+", listed[1])
    assert members[0] == "upsert"
    assert sorted(members) == sorted(name for name in dir(lakeformat.Table) if not name.startswith("_"))


def test_no_paragraph_of_a_page_is_a_wall() -> None:
    """A paragraph has at most 900 characters; the tables and lists are not counted."""
    walls = [
        (page.name, len(part), part[:40])
        for page in [*DOCS.glob("*.md"), ROOT / "README.md"]
        for part in re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M).split("\n\n")
        if len(part) > 900 and not part.lstrip().startswith(("|", "-", "*", "1.", "<!--", ":::"))
    ]
    assert walls == []
