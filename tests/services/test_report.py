"""The report of a table: its facts by other readers, its page by an HTML parser."""

from __future__ import annotations

import html
import json
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.cli.main import main
from lakeformat.services.report.facts import Section
from lakeformat.services.report.growth import TableSize
from lakeformat.services.report.page import file_size_classes, partition_sizes, render_page, slowest_steps
from lakeformat.timeline.history import History, HistoryEntry
from tests.helpers.browser import open_browser
from tests.helpers.tables import NO_PACKING, a_batch, a_table

#: Nothing is cleaned or compacted, so every old version can be compared.
KEEP: dict[str, Any] = {**NO_PACKING, "hoodie.clean.automatic": False, "lakeformat.compact.auto": False}
HOSTILE = "<script>alert('x')</script>\"&<img src=x onerror=alert(1)>"


class _Page(HTMLParser):
    """The elements of a page, with their attributes and the text of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def tags(self) -> Counter[str]:
        return Counter(tag for tag, _ in self.elements)


def a_life(folder: Path, **options: Any) -> lakeformat.Table:
    """Make a table whose life has every kind of change."""
    table = a_table(
        folder, rows=a_batch(id=range(30), p=[str(n % 3) for n in range(30)], v=0), partition_by="p", **KEEP, **options
    )
    table.upsert(a_batch(id=range(5, 15), p=[str(n % 3) for n in range(5, 15)], v=1))
    table.insert(a_batch(id=range(100, 120), p="1", v=2))
    table.delete(where="id < 4")
    table.insert_overwrite(a_batch(id=range(200, 203), p="2", v=3))
    table.delete_partitions(["0"])
    return table


@pytest.mark.parametrize("version", [6, 9])
def test_sizes_over_time_are_those_of_the_files_on_disk_at_each_version(tmp_path: Path, version: int) -> None:
    table = a_life(tmp_path / "t", version=version)
    table.cluster()
    table.restore(table.history()[2].instant_time)
    table.upsert(a_batch(id=[300, 5], p="2", v=9))
    shown = []
    for commit in reversed(table.history()):
        paths = [tmp_path / "t" / path for path in table.files(as_of=commit.instant_time)["path"].to_pylist()]
        rows = sum(pq.read_metadata(path).num_rows for path in paths)
        shown.append(TableSize(commit.instant_time, rows, sum(path.stat().st_size for path in paths), len(paths)))
    assert table.report().facts.sizes == tuple(shown)


@pytest.mark.parametrize("version", [6, 9])
def test_sizes_of_log_files_count_until_a_compaction(tmp_path: Path, version: int) -> None:
    table = a_life(tmp_path / "t", version=version, merge_on_read=True)

    def last_is_on_disk() -> bool:
        files = table.files().to_pylist()
        paths = [path for each in files for path in (each["path"], *(each["log_files"] or ())) if path is not None]
        last = table.report().facts.sizes[-1]
        return (last.size_bytes, last.files) == (sum((tmp_path / "t" / p).stat().st_size for p in paths), len(paths))

    assert table.describe().log_bytes
    assert last_is_on_disk()
    table.compact()
    assert not table.describe().log_bytes
    assert last_is_on_disk()
    table.upsert(a_batch(id=[201], p="2", v=5))
    assert last_is_on_disk()


def test_archived_commits_are_in_the_sizes(tmp_path: Path) -> None:
    limits = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.cleaner.commits.retained": 1}
    table = a_table(tmp_path / "t", rows=[a_batch(id=range(n), v=n) for n in range(1, 9)], operation="upsert", **limits)
    assert table.describe().last_archived is not None
    sizes = table.report().facts.sizes
    assert [each.rows for each in sizes] == list(range(1, 9))


def test_the_page_shows_what_duckdb_and_the_disk_say(tmp_path: Path) -> None:
    table = a_life(tmp_path / "t")
    facts = table.report().facts
    text = " ".join(_Page(render_page(facts)).texts)
    rows = duckdb.read_parquet([str(tmp_path / "t" / path) for path in table.files()["path"].to_pylist()])
    assert f"{len(rows)} rows" in text
    files = table.files()
    by_partition = duckdb.sql(
        "select partition_path, sum(size_bytes)::bigint b, count(*) n, 0 from files group by 1 order by b desc, 1"
    ).fetchall()
    assert [tuple(each.values()) for each in partition_sizes(files).to_pylist()] == by_partition
    assert all(f"{size:,}" in text for _, size, _, _ in by_partition)
    classes = duckdb.sql("select (2 ** floor(log2(size_bytes)))::bigint s, count(*) from files group by 1 order by 1")
    assert [each for each in file_size_classes(files) if each[1]] == classes.fetchall()
    for commit in table.history():
        assert commit.instant_time in text
    slowest = max(step["seconds"] for commit in table.history() for step in commit.report["steps"])
    assert slowest_steps(facts.history)[0][0] == slowest
    assert {each.name for each in facts.services} >= {"clean", "archive", "cluster"}
    assert "Nothing is wrong" in text


def test_hostile_names_do_not_inject(tmp_path: Path) -> None:
    column = f"c{HOSTILE}"
    table = a_table(
        tmp_path / "t", rows=a_batch(id=[1], p=[f"p{HOSTILE.replace('/', '-')}"], v=1), partition_by="p", **KEEP
    )
    table.savepoint(comment=HOSTILE, user=HOSTILE)
    lakeformat.sql("update t set v = 2 where p <> '<script>&<b>'", t=table)
    facts = table.report().facts
    facts = replace(
        facts, columns=((column, HOSTILE),), name=HOSTILE, location=HOSTILE, missing={Section.LAYOUT: HOSTILE}
    )
    page = _Page(render_page(facts))
    plain = _Page(
        render_page(replace(facts, columns=(("c", "t"),), name="n", location="l", missing={Section.LAYOUT: "m"}))
    )
    assert not {"script", "img", "iframe", "link", "object"} & page.tags.keys()
    assert page.tags == plain.tags
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "".join(page.texts).count(HOSTILE) >= 6
    report = table.report()
    frame = _Page(report._repr_html_())
    assert [tag for tag, _ in frame.elements] == ["iframe"]
    assert frame.elements[0][1]["srcdoc"] == report.to_html()


def test_the_page_loads_nothing_and_its_pictures_have_words(tmp_path: Path) -> None:
    text = a_life(tmp_path / "t").report().to_html()
    page = _Page(text)
    assert page.open == []
    assert not {"src", "href", "action"} & {name for _, attributes in page.elements for name in attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert page.tags["caption"] == page.tags["table"]
    pictures = [attributes for tag, attributes in page.elements if tag == "svg"]
    charts = [each for each in pictures if each.get("role") == "img"]
    assert len(charts) >= 5
    assert all(each.get("aria-hidden") == "true" for each in pictures if each not in charts)
    assert page.tags["desc"] == len(charts)
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))


def test_a_table_of_100_000_files_has_a_small_page(tmp_path: Path) -> None:
    facts = a_table(tmp_path / "t", rows=a_batch(id=[1], p="x", v=1), partition_by="p").report().facts
    count = 100_000
    paths = [f"region={n % 5_000}/{'long' * 20}/{n}.parquet" for n in range(count)]
    files = pa.table(
        {
            "path": paths,
            "partition_path": [path.rpartition("/")[0] for path in paths],
            "file_id": [str(n) for n in range(count)],
            "instant_time": ["20260101000000000"] * count,
            "size_bytes": [1 + n**2 for n in range(count)],
            "rows": pa.array(range(count), pa.int64()),
            "log_files": pa.nulls(count, pa.list_(pa.string())),
        }
    )
    steps = {"seconds": 1.0, "steps": [{"step": "write" * 50, "seconds": 1.0}] * 10, "rows": {}, "files": {}}
    entry = HistoryEntry("20260101000000000", "commit", "upsert", 1, 1, steps, "x" * 5_000, version=0)
    sizes = tuple(TableSize("20260101000000000", n, n, n) for n in range(2_000))
    many = replace(
        facts, files=files, history=History([entry] * 2_000), sizes=sizes, columns=(("c" * 900, "t"),) * 9_000
    )
    page = render_page(many)
    assert len(page) < 300_000
    assert "8,900 more columns are not listed." in page
    assert page == render_page(many)


def test_a_table_whose_newest_commit_is_cut_short_has_a_report(tmp_path: Path) -> None:
    table = a_life(tmp_path / "t")
    newest = tmp_path / "t" / ".hoodie" / f"{table.history()[0].instant_time}.replacecommit"
    newest.write_bytes(newest.read_bytes()[:40])
    report = lakeformat.open(tmp_path / "t").report()
    text = " ".join(_Page(report.to_html()).texts)
    assert Section.TIMELINE.value in report.missing
    assert "instant cannot be read" in text
    assert newest.name in text


def test_an_empty_table_has_a_report_and_a_missing_one_an_error(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64"}, record_key="id")
    assert "the table is empty" in table.report().to_html()
    gone = lakeformat.open(tmp_path / "t")
    (tmp_path / "t" / ".hoodie" / "hoodie.properties").unlink()
    with pytest.raises(lakeformat.LakeformatError):
        gone.report()


def test_columns_of_the_layout_are_those_asked_or_those_of_the_last_clustering(tmp_path: Path) -> None:
    table = a_life(tmp_path / "t")
    assert table.report().facts.layout.columns == ("id", "v")
    assert table.report("v").facts.layout.columns == ("v",)
    assert "nothing" in table.report(["nothing"]).missing[Section.LAYOUT.value]
    table.cluster(by=["v"])
    assert table.report().facts.layout.columns == ("v",)


def test_services_are_due_as_their_own_dry_runs_say(tmp_path: Path) -> None:
    table = a_life(tmp_path / "t")
    for _ in range(12):
        table.upsert(a_batch(id=[201], p="2", v=7))
    result = table.clean(dry_run=True)
    states = {each.name: each for each in table.report().facts.services}
    assert states["clean"].due.value == "due"
    assert f"{len(result.files):,} files" in states["clean"].text
    assert table.report().facts.services[0].name == "clean"
    table.clean()
    assert {each.name: each.due.value for each in table.report().facts.services}["clean"] == "not due"


def test_a_report_changes_nothing(tmp_path: Path) -> None:
    table = a_life(tmp_path / "t")
    table.count()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    table.report(check=True).save(tmp_path / "page.html")
    (tmp_path / "page.html").unlink()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_command_writes_the_page(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    a_life(tmp_path / "t")
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "t"), "-o", str(out), "--no-check", "--by", "id"]) == 0
    page = out.read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert html.escape("not checked, as check=False asks") in page
    said = capsysbinary.readouterr()
    assert said.out == b""
    assert b"report of t" in said.err
    assert main(["report", str(tmp_path / "t")]) == 0
    assert capsysbinary.readouterr().out.startswith(b"<!DOCTYPE html>")
    assert main(["report", str(tmp_path / "t"), "--output", str(out), "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out) == {
        "output": str(out),
        "size_bytes": out.stat().st_size,
        "missing": {},
    }


@pytest.mark.nightly
@pytest.mark.budget(60)
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_the_page_without_errors(tmp_path: Path, width: int, dark: bool) -> None:
    a_life(tmp_path / "t", merge_on_read=True).report().save(tmp_path / "page.html")
    with open_browser(tmp_path) as browser:
        browser.show(tmp_path / "page.html", width=width, dark=dark)
        browser.screenshot(tmp_path / "page.png")
        assert browser.errors == []
        assert browser.requests == [(tmp_path / "page.html").as_uri()]
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
        background = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(17, 22, 27)" if dark else "rgb(243, 245, 247)")
        least = "Math.min(...[...document.querySelectorAll('svg.chart')].map(c => c.getBoundingClientRect().width))"
        assert browser.ask(least) > 300
    assert (tmp_path / "page.png").stat().st_size > 10_000
