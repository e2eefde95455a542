"""Hooks of mkdocs that make pages of the site from other files of the project.

The notebooks become pages with their outputs. Tables of options have two columns on the site: the name with its short
names and default, and the description.
"""

from __future__ import annotations

import base64
import html
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["notebook_page", "on_config", "on_files", "on_page_content", "on_page_markdown", "options_in_two_columns"]

_ROOT: Final = Path(__file__).resolve().parents[1]
_OPTION_PAGES: Final = ("options.md", "reference/hudi-options.md")
_ROW: Final = re.compile(r"^\| ?(.*?) ?\| ?(.*?) ?\| ?(.*?) ?\| ?(.*?) ?\|$")
_CELL: Final = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CODE: Final = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
_REMOTE: Final = re.compile(r"(?:https?://|(?:ssh://)?git@)(?:[^/@]*@)?([\w.-]+)[:/](.+?)(?:\.git)?/?")


def on_config(config: Any, **_: Any) -> Any:
    """Link the repository from which the checkout was cloned, unless the environment names one (a hook of mkdocs)."""
    if not config.repo_url and (address := _origin()):
        config.repo_url, config.repo_name = address, "repository"
    return config


def _origin() -> str | None:
    """Return the browser address of git's remote ``origin``, without user and password; None if there is none."""
    try:
        found = subprocess.run(
            ["git", "remote", "get-url", "origin"], cwd=_ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    match = _REMOTE.fullmatch(found.stdout.strip())
    return f"https://{match[1]}/{match[2]}" if match else None


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Add a page for each notebook (a hook of mkdocs)."""
    from mkdocs.structure.files import File

    for notebook in sorted((_ROOT / "docs" / "notebooks").glob("*.ipynb")):
        text = notebook_page(json.loads(notebook.read_text(encoding="utf-8")), notebook.name)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page's Markdown in the form that is rendered (a hook of mkdocs)."""
    if page.file.src_uri == "notebooks.md":
        markdown = markdown.replace(".ipynb)", ".md)")
    return options_in_two_columns(markdown) if page.file.src_uri in _OPTION_PAGES else markdown


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Allow line breaks in table code between two calls, and in option names after a dot (a hook of mkdocs)."""
    is_options = page.file.src_uri in _OPTION_PAGES
    before, after = (".", ".<wbr>") if is_options else (").", ")<wbr>.")

    def cell(found: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace(before, after), found[0])

    broken = _CELL.sub(cell, content)
    return f'<div class="lf-options">{broken}</div>' if is_options else broken


def options_in_two_columns(markdown: str) -> str:
    """Move the second and third column of each table with four columns below the name in the first column."""
    return "\n".join(_two_columns(markdown.split("\n")))


def _two_columns(lines: list[str]) -> Iterator[str]:
    labels: tuple[str, str] | None = None
    for line in lines:
        row = _ROW.fullmatch(line)
        if row is None:
            labels = None
            yield line
        elif labels is None:
            labels = (row[2], row[3])
            yield f"| {row[1]} | {row[4]} |"
        elif set(line) <= set("|-: "):
            yield "|---|---|"
        else:
            more = [f"{label}: {cell}" for label, cell in zip(labels, (row[2], row[3]), strict=True) if cell]
            below = f'<br><span class="lf-more">{"<br>".join(more)}</span>' if more else ""
            yield f"| {row[1]}{below} | {row[4]} |"


def notebook_page(document: dict[str, Any], name: str) -> str:
    """Render a notebook's cells and their outputs as Markdown."""
    parts = []
    for cell in document["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += filter(None, map(_output, cell["outputs"]))
    parts.insert(1, f"[The notebook itself]({name}), to be run from top to bottom.")
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    shown = output.get("data", {})
    if "image/png" in shown:
        picture = base64.b64encode(base64.b64decode(shown["image/png"])).decode()
        return f'<div class="lf-output"><img alt="what the cell draws" src="data:image/png;base64,{picture}"></div>'
    if "text/html" in shown:
        return f'<div class="lf-output">{_one_line("".join(shown["text/html"]))}</div>'
    text = "".join(output.get("text", shown.get("text/plain", "")))
    return f'<div class="lf-output"><pre>{html.escape(text.rstrip())}</pre></div>' if text.strip() else ""


def _one_line(text: str) -> str:
    """Return HTML without line breaks: Markdown ends a raw block at an empty line."""
    return re.sub(r"\s*\n\s*", " ", text)
