"""The views of answers in notebooks: an HTML table in which no value of the user becomes markup."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, Table
from lakeformat.services.doctor.findings import Finding, Findings, Kind
from lakeformat.timeline.write_report import make_stages
from lakeformat.transaction.commit.result import WriteResult

EVIL: Final = "<script>alert('&')"
ROWS: Final = [{"id": number, "part": EVIL, "x": number * 0.5} for number in range(20)]
SMALL: Final = {"hoodie.parquet.small.file.limit": 0}
OURS: Final = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "p"}


class Seen(HTMLParser):
    """The tags and the text of a page, and whether each opened tag was closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = lakeformat.create(tmp_path / "<b>", ROWS, record_key="id", partition_by="part")
    made.upsert(ROWS)
    return made


VIEWS: Final[dict[str, tuple[Callable[[Table], Any], str]]] = {
    "table": (lambda table: table, "<b>"),
    "result": (lambda table: table.upsert(ROWS[:3]), "updated"),
    "skipped": (lambda _: WriteResult("1", "upsert", {}, skipped=EVIL), EVIL),
    "history": (lambda table: table.history(), "upsert"),
    "write plan": (lambda table: table.plan_upsert(ROWS), EVIL),
    "read plan": (lambda table: table.read(where="id > 3").plan(count_row_groups=True), "row groups, of 1"),
    "layout report": (lambda table: table.layout_report(["id", "x"]), "on x"),
    "description": (lambda table: table.describe(), "newest commit"),
    "check": (lambda table: table.check(), "nothing is wrong"),
    "findings": (lambda _: Findings((Finding(Kind.KEY_TWICE, EVIL, "restore it", 7),)), EVIL),
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_render_as_html_with_escaped_values(name: str, table: Table) -> None:
    answer, said = VIEWS[name]
    seen = Seen(answer(table)._repr_html_())
    assert seen.open == []
    assert seen.tags <= OURS
    assert "table" in seen.tags
    assert said in " ".join(seen.text)


def test_tagging_figure_shows_the_counts_of_the_report(table: Table, tmp_path: Path) -> None:
    rows = [*ROWS[:5], {"id": 100, "part": EVIL, "x": 1.0}]
    plan, result = table.plan_upsert(rows), table.upsert(rows)
    stages = make_stages(result.report)
    assert [stage.count for stage in stages] == [6, 6, 5, 1]  # Keys are compared as text.
    assert "5 updated, 1 inserted" in stages[-1].note
    result.to_png(tmp_path / "funnel.png")
    assert (tmp_path / "funnel.png").read_bytes().startswith(b"\x89PNG")
    assert len(plan.figure().axes) == 1
    with pytest.raises(InvalidInputError, match="looked for no keys"):
        table.insert(rows).figure()


def test_layout_figure_compares_with_an_earlier_report(tmp_path: Path) -> None:
    rows = pa.table({"id": list(range(4000)), "x": [(number * 7919) % 4000 for number in range(4000)]})
    table = lakeformat.create(tmp_path / "t", rows.schema, record_key="id", **SMALL)
    for start in range(0, 4000, 500):
        table.bulk_insert(rows.slice(start, 500))
    before = table.layout_report(["x"])
    table.cluster("x", target_file_bytes=20_000)
    after = table.layout_report(["x"])
    panels = before.figure(after=after).axes
    assert [panel.get_title(loc="left") for panel in panels] == ["before", "after"]
    assert before.figure().axes[0].get_title(loc="left") == "as it lies now"
    with pytest.raises(InvalidInputError, match="same columns"):
        before.figure(after=table.layout_report(["id"]))
