"""Generate ``docs/decisions/README.md``, the list of the pages of decisions: ``python tools/decisions.py``.

Each decision is a section ``## <number>. <title>`` in a page of ``docs/decisions``. The preface of the list says which
number a new decision gets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "PAGES", "index", "next_number", "slug"]

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "decisions"
#: Names of the pages, in the order of the index: from storage up to the user interfaces.
PAGES: Final = (
    *("storage", "timeline", "transaction", "keys-and-index", "files", "file-slices-and-merging"),
    *("file-index-and-layout", "read", "changes-and-streams", "write", "clustering-and-compaction"),
    *("cleaning-and-archiving", "restore-doctor-versions", "catalog", "spark", "python-sql-command-line", "config"),
    "structure-and-tests",
)
#: Matches the heading of a decision: its number and title.
_ENTRY: Final = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
_PREFACE: Final = """\
# Decisions

What was decided where there were alternatives, and why: the context, the decision, and what follows from it ("Given
up" names the price). Numbers are kept for ever; a decision that a later one replaced is removed, and the later one
names it; `grep -rn "^## 304" docs/decisions` finds the one with that number. Made by `python tools/decisions.py`. The
next number is {number}.
"""


def slug(heading: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-")


def index() -> str:
    """Return the text of the index, ``docs/decisions/README.md``."""
    lines = [_PREFACE.format(number=next_number())]
    for name in PAGES:
        text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# Decisions: ")
        lines.append(f"- [{title[0].upper()}{title[1:]}]({name}.md)")
    return "\n".join([*lines, ""])


def next_number() -> int:
    """Return the number for a new decision: one more than the maximum number of all pages."""
    pages = (page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md") if page.name != "README.md")
    return 1 + max(int(number) for page in pages for number, _ in _ENTRY.findall(page))


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(index(), encoding="utf-8")
