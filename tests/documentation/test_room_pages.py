"""The lists "To change" of the room pages name every place: one more index, option or service is added on paper.

Each case takes a sibling that exists already, and searches the sources for its names. Modules that are about the
sibling alone, or take whatever is there, do not count. All others must be named in the list.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.pages import ROOT

_SOURCES = ROOT / "lakeformat"
_NAMED = re.compile(r"`([\w./]+\.py)`|\]\(([\w./]+\.py)\)")

#: Maps room and entry of its list to the sibling's names, and the modules that do not count.
_SIBLINGS: dict[tuple[str, str], tuple[str, set[str]]] = {
    ("index", "An index"): (r"\bINMEMORY\b|\bMemoryIndex\b", {"index/memory.py"}),
    ("config", "An option"): (r"lakeformat\.read\.split\.bytes", {"spark/streams/reader.py", "spark/settings.py"}),
    ("services", "A service"): (
        r"\bExpire(?:Session|Result)\b|\bexpire_partitions\b|\brun_ttl\b",
        {"services/ttl.py"},
    ),
    ("arrow", "A kind of type"): (r"\bKind\.INTERVAL\b", set()),
    ("model", "A table version"): (r"\bTABLE_VERSIONS\b", {"metadata_table/metadata_table.py"}),
}


def entry_of(room: str, title: str) -> str:
    """Return the entry of a room's list "To change" that begins with a title."""
    page = (_SOURCES / room / "README.md").read_text(encoding="utf-8")
    changes = page.partition("\n## To change\n")[2].partition("\n## ")[0]
    return next(entry for entry in re.split(r"^- ", changes, flags=re.MULTILINE) if entry.startswith(f"**{title}"))


def modules_in(room: str, entry: str) -> set[str]:
    """Return the modules that an entry names, relative to ``lakeformat/``. They are looked for in the room, too."""
    names = {first or second for first, second in _NAMED.findall(entry)}
    places = (place / name for name in names for place in (_SOURCES / room, _SOURCES, ROOT))
    return {module_name(path) for path in places if path.exists() and path.resolve().is_relative_to(_SOURCES)}


def module_name(path: Path) -> str:
    """Return the path of a module relative to ``lakeformat/``."""
    return str(path.resolve().relative_to(_SOURCES.resolve()))


@pytest.mark.parametrize(("room", "title"), _SIBLINGS, ids=" ".join)
def test_a_list_names_every_place_of_a_sibling(room: str, title: str) -> None:
    names, own = _SIBLINGS[room, title]
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in sorted(_SOURCES.rglob("*.py"))}

    found = {name for name, text in sources.items() if re.search(names, text)}

    assert own <= found, "these modules are no longer about the sibling"
    assert found - own - modules_in(room, entry_of(room, title)) == set()
