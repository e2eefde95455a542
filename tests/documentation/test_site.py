"""The site that is built of the project's pages; `make docs` builds all of it."""

from __future__ import annotations

from types import SimpleNamespace

from tests.helpers.pages import ROOT
from tools.mkdocs_hooks import notebook_page, on_page_content, on_page_markdown, options_in_two_columns

OPTIONS = ROOT / "docs" / "options.md"
HUDI_OPTIONS = ROOT / "docs" / "reference" / "hudi-options.md"


def page(name: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=name))


def test_options_have_two_columns() -> None:
    text = (
        "before\n| option | short names | default | what it does |\n|---|---|---|---|\n| `a.b` | `b` |  | It. |\nafter"
    )
    assert options_in_two_columns(text).split("\n") == [
        "before",
        "| option | what it does |",
        "|---|---|",
        '| `a.b`<br><span class="lf-more">short names: `b`</span> | It. |',
        "after",
    ]


def test_site_page_has_every_option() -> None:
    for name, source in (("options.md", OPTIONS), ("reference/hudi-options.md", HUDI_OPTIONS)):
        text = source.read_text(encoding="utf-8")
        rows = [line for line in on_page_markdown(text, page=page(name)).splitlines() if line.startswith("| `")]
        assert len(rows) == sum(line.startswith("| `") for line in text.splitlines())
        assert {row.count(" | ") for row in rows} == {1}


def test_names_of_options_break_after_dots_alone() -> None:
    cell = '<table><tr><td style="x"><code>hoodie.table.name</code></td></tr></table><p><code>a.b</code></p>'
    shown = on_page_content(cell, page=page("options.md"))
    assert "<code>hoodie.<wbr>table.<wbr>name</code>" in shown
    assert "<code>a.b</code>" in shown
    assert "<wbr>" not in on_page_content(cell, page=page("reading.md"))


def test_tables_to_be_read_row_by_row_are_marked() -> None:
    assert on_page_content("<p></p>", page=page("troubleshooting.md")) == '<div class="lf-stacked"><p></p></div>'
    assert on_page_content("<p></p>", page=page("api.md")) == '<div class="lf-stacked lf-api"><p></p></div>'
    assert on_page_content("<p></p>", page=page("benchmarks.md")) == '<div class="lf-wide"><p></p></div>'
    assert on_page_content("<p></p>", page=page("reading.md")) == "<p></p>"


def test_a_notebooks_outputs_are_on_its_page() -> None:
    outputs = [
        {"data": {"text/html": ["<table>\n\n", "</table>"], "text/plain": ["no"]}},
        {"data": {"image/png": "aGVsbG8=\n"}},
        {"name": "stdout", "text": ["a < b\n"]},
        {"data": {"text/plain": [""]}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": outputs},
    ]
    made = notebook_page({"cells": cells}, "x.ipynb").split("\n\n")
    assert made[0] == "# Title"
    assert "(x.ipynb)" in made[1]
    assert made[2] == "```python\n1 + 1\n```"
    assert made[3] == '<div class="lf-output"><table> </table></div>'
    assert 'src="data:image/png;base64,aGVsbG8="' in made[4]
    assert made[5] == '<div class="lf-output"><pre>a &lt; b</pre></div>\n'
    assert len(made) == 6
