"""What the site has that lies elsewhere in the project: the page of Hudi's options is ``OPTIONS.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["on_page_markdown"]

_ROOT = Path(__file__).resolve().parents[1]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A page's text before it is rendered (a hook of mkdocs)."""
    if page.file.src_uri != "hudi-options.md":
        return markdown
    return (_ROOT / "OPTIONS.md").read_text(encoding="utf-8").replace("docs/options.md", "options.md")
