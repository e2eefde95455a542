"""Hooks that mkdocs calls while it builds the site.

They add a page for each notebook, with its outputs. They also change the tables of options to two columns: the name
with its short names and default, and the description.
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
#: Maps a page to the classes of its tables on a phone: those that are read row by row, and those too wide for that.
_TABLES: Final = {
    **dict.fromkeys(_OPTION_PAGES, "lf-options"),
    **dict.fromkeys(("install.md", "recipes.md", "troubleshooting.md"), "lf-stacked"),
    "api.md": "lf-stacked lf-api",
    **dict.fromkeys(("benchmarks.md", "reference/benchmarks.md"), "lf-wide"),
}
#: Matches a row with four cells of a Markdown table.
_ROW: Final = re.compile(r"^\| ?(.*?) ?\| ?(.*?) ?\| ?(.*?) ?\| ?(.*?) ?\|$")
#: Matches a cell of an HTML table.
_CELL: Final = re.compile(r"<td\b.*?</td>", re.DOTALL)
#: Matches the text of an HTML element ``code``.
_CODE: Final = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
#: Matches the URL of a git remote: its groups are the host and the repository's path.
_REMOTE: Final = re.compile(r"(?:https?://|(?:ssh://)?git@)(?:[^/@]*@)?([\w.-]+)[:/](.+?)(?:\.git)?/?")


def on_config(config: Any, **_: Any) -> Any:
    """Set the link to the repository from git's remote ``origin``, if the configuration has none (a hook of mkdocs)."""
    if not config.repo_url and (address := _origin()):
        config.repo_url, config.repo_name = address, "repository"
    return config


def _origin() -> str | None:
    """Return the https address of git's remote ``origin``, without user and password; None if there is no remote."""
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
    """Change links to notebooks, and tables of options, in a page's Markdown before it is rendered (a mkdocs hook)."""
    if page.file.src_uri == "notebooks.md":
        markdown = markdown.replace(".ipynb)", ".md)")
    return options_in_two_columns(markdown) if page.file.src_uri in _OPTION_PAGES else markdown


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Let browsers break long code in table cells: after a dot in option names, else between calls (a mkdocs hook)."""
    is_options = page.file.src_uri in _OPTION_PAGES
    before, after = (".", ".<wbr>") if is_options else (").", ")<wbr>.")

    def cell(found: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace(before, after), found[0])

    broken = _CELL.sub(cell, content)
    kind = _TABLES.get(page.file.src_uri)
    return f'<div class="{kind}">{broken}</div>' if kind else broken


def options_in_two_columns(markdown: str) -> str:
    """Change each table with four columns to two: the second and third cell of a row move below the first cell."""
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
    """Render a notebook's cells and their outputs as Markdown.

    Args:
        document: the parsed notebook.
        name: its file name, to which the page links.
    """
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
    """Remove the line breaks from HTML, because Markdown ends a block of raw HTML at an empty line."""
    return re.sub(r"\s*\n\s*", " ", text)
