"""The promises of a report hold for the files that a clustering then makes; and pictures of the report."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.layout import CurveStrategy, cut_places, fit_curve
from lakeformat.layout.layout_report import LayoutReport
from lakeformat.spark import LakehouseTable
from tests.helpers.tables import a_schema

ROWS = 20_000
EVEN = np.arange(1, 16) * ROWS // 16
SCHEMA = a_schema(id="int64", x="int64", y="string", s=pa.struct([("z", pa.float64())]))


def rows_of(rng: np.random.Generator) -> pa.Table:
    x = np.minimum(rng.zipf(1.3, ROWS), 10**9)
    z = pa.StructArray.from_arrays([pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.1)], ["z"])
    y = pc.cast(pa.array(rng.integers(100_000, 999_999, ROWS)), pa.string())
    return pa.table([pa.array(np.arange(ROWS)), pa.array(x), y, z], schema=SCHEMA)


def table_of(path: Path, rows: pa.Table, starts: np.ndarray = EVEN) -> lakeformat.Table:
    """Create a table of 16 files of consecutive rows. ``starts`` are the first ids of all files except the first."""
    table = lakeformat.create(path, SCHEMA, record_key="id")
    table.bulk_insert(rows, partitioner=lambda part: np.searchsorted(starts, np.asarray(part["id"]), "right"))
    return table


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> lakeformat.Table:
    return table_of(tmp_path_factory.mktemp("report"), rows_of(np.random.default_rng(1)))


def read_shares(report: LayoutReport) -> dict[str, float]:
    return {layout.name: layout.read for layout in report.layouts}


def test_shuffled_rows_skip_nothing_and_hilbert_skips_most(shuffled: lakeformat.Table) -> None:
    report = shuffled.layout_report(["x", "y"])
    reads = read_shares(report)
    assert list(reads) == ["now", "linear", "z-order", "hilbert"]
    assert reads["now"] > 0.9
    assert reads["hilbert"] < 0.5
    assert report.best in {"z-order", "hilbert"}
    assert (report.rows, report.files, report.sampled) == (ROWS, 16, ROWS)
    assert f'run table.cluster(by=["x", "y"], curve="{report.best}")' in str(report)


@pytest.mark.parametrize("strategy", list(CurveStrategy))
def test_rewritten_files_skip_as_much_as_the_report_promised(
    shuffled: lakeformat.Table, tmp_path: Path, strategy: CurveStrategy
) -> None:
    columns = ["x", "y", "s.z"]
    promised = next(one for one in shuffled.layout_report(columns).layouts if one.name == strategy.value)
    rows = shuffled.to_arrow(meta_columns=False)
    places = fit_curve(strategy, columns, rows).positions(rows)
    order = np.argsort(places, kind="stable")
    laid_out = rows.take(pa.array(order)).set_column(0, "id", pa.array(np.arange(ROWS)))
    after = table_of(tmp_path, laid_out, cut_places(places[order], 16)).layout_report(columns)
    assert after.layouts[0].files == 16
    assert dict(after.layouts[0].skipped) == pytest.approx(dict(promised.skipped), abs=0.05)
    assert after.layouts[0].skipped_together == pytest.approx(promised.skipped_together, abs=0.05)
    if strategy is CurveStrategy.HILBERT:
        assert after.best == "now"
        assert "leave it" in str(after)


def test_clustered_table_skips_as_much_as_the_report_promised(tmp_path: Path) -> None:
    table = table_of(tmp_path, rows_of(np.random.default_rng(7)))
    target = sum(file.size_bytes for file in table.snapshot().files) // 20
    promised = table.layout_report(["x", "s.z"], target_file_bytes=target).layouts[-1]
    table.cluster(by=["x", "s.z"], curve=promised.name, target_file_bytes=target)
    after = table.layout_report(["x", "s.z"])
    assert promised.files == pytest.approx(after.files, rel=0.1)
    assert after.layouts[0].read == pytest.approx(promised.read, abs=0.02)
    assert after.best == "now"


def test_shares_equal_those_computed_from_footers(shuffled: lakeformat.Table, tmp_path: Path) -> None:
    rows = shuffled.to_arrow(meta_columns=False).sort_by("y")
    table = table_of(tmp_path, rows.set_column(0, "id", pa.array(np.arange(ROWS))))
    skipped = table.layout_report(["y"], selectivity=0.001).layouts[0].skipped["y"]
    spans = []
    for file in Path(tmp_path).glob("*.parquet"):
        values = pq.read_table(file, columns=["y"])["y"]
        spans.append((pc.min(values).as_py(), pc.max(values).as_py()))
    asked = np.random.default_rng(3).choice(np.asarray(rows["y"]), 500)
    read = np.mean([[low <= value <= high for low, high in spans] for value in asked])
    assert skipped == pytest.approx(1 - read, abs=0.05)


def test_each_partition_is_laid_out_by_itself(tmp_path: Path) -> None:
    rows = rows_of(np.random.default_rng(2))
    part = pa.array(np.where(np.arange(ROWS) % 4, "many", "few"))
    table = lakeformat.create(tmp_path, SCHEMA.append(pa.field("p", pa.string())), record_key="id", partition_by="p")
    table.bulk_insert(
        rows.append_column("p", part),
        partitioner=lambda part: np.where(np.asarray(part["p"]) == "few", 0, np.asarray(part["id"]) // 4 % 8),
    )
    report = table.layout_report(["x", "y"])
    assert [layout.files for layout in report.layouts] == [9] * 4
    # Every filter reads the partition of one file, which is a ninth of the files.
    assert read_shares(report)["hilbert"] > 1 / 9
    finer = table.layout_report(["x", "y"], target_file_bytes=report.rows)
    assert finer.layouts[-1].files > 9
    assert read_shares(finer)["hilbert"] < read_shares(report)["hilbert"]


def test_one_column_needs_no_curve(shuffled: lakeformat.Table) -> None:
    report = shuffled.layout_report(["s.z"])
    assert [layout.name for layout in report.layouts] == ["now", "linear"]
    assert report.best == "linear"
    assert "together" not in str(report)


def test_a_lakehouse_table_reports_the_same_without_a_spark_job(shuffled: lakeformat.Table) -> None:
    table = LakehouseTable.forPath(None, shuffled.context.storage.location)
    assert str(table.layout_report(["x", "y"])) == str(shuffled.layout_report(["x", "y"]))


def test_table_of_one_file_cannot_skip(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path, SCHEMA, record_key="id")
    assert "one file cannot be skipped in part" in str(table.layout_report(["x", "y"]))
    table.bulk_insert(rows_of(np.random.default_rng(3)).slice(0, 100))
    assert "one file cannot be skipped in part" in str(table.layout_report(["x", "y"]))


def test_a_column_of_nulls_is_skipped_by_every_filter(tmp_path: Path) -> None:
    rows = rows_of(np.random.default_rng(4)).set_column(1, "x", pa.nulls(ROWS, pa.int64()))
    report = table_of(tmp_path, rows).layout_report(["x", "y"])
    assert {layout.skipped["x"] for layout in report.layouts} == {1.0}


def test_report_on_bad_columns_is_refused(shuffled: lakeformat.Table) -> None:
    with pytest.raises(InvalidInputError, match="'z' is not in the table"):
        shuffled.layout_report(["x", "z"])
    with pytest.raises(SchemaMismatchError, match="no order"):
        shuffled.layout_report(["s"])
    with pytest.raises(InvalidInputError, match="different columns"):
        shuffled.layout_report(["x", "X"])
    with pytest.raises(InvalidInputError, match="not a share of rows"):
        shuffled.layout_report(["x"], selectivity=1.5)


def test_pictures_show_every_layout_and_its_files(shuffled: lakeformat.Table, tmp_path: Path) -> None:
    report = shuffled.layout_report(["x", "y", "s.z"])
    panels = report.figure(plane=["y", "s.z"]).axes
    assert [panel.get_title(loc="left").partition(",")[0] for panel in panels] == [
        "as it lies now",
        "linear",
        "z-order",
        "hilbert",
    ]
    assert {(panel.get_xlabel(), panel.get_ylabel()) for panel in panels} == {("y", "s.z")}
    for panel, layout in zip(panels, report.layouts, strict=True):
        outlines = [one for one in panel.collections if one.get_facecolor().size == 0]
        assert sum(len(one.get_paths()) for one in outlines) == layout.files
    report.to_png(tmp_path / "layout.png")
    assert (tmp_path / "layout.png").read_bytes().startswith(b"\x89PNG")
    assert len(shuffled.layout_report(["x"]).figure().axes) == 2
    with pytest.raises(InvalidInputError, match="has no column 'id'"):
        report.figure(plane=["id", "x"])
    with pytest.raises(InvalidInputError, match="two different columns"):
        report.figure(plane=["x", "x"])


def test_before_and_after_figures_use_one_filter(tmp_path: Path) -> None:
    table = table_of(tmp_path, rows_of(np.random.default_rng(1)))
    before = table.layout_report(["y", "id"])
    table.cluster(["y", "id"], curve="hilbert")
    panels = before.figure(after=table.layout_report(["y", "id"])).axes
    frames = [panel.patches[-1].get_bbox().extents for panel in panels]
    assert len(frames) == 2
    assert np.allclose(*frames, atol=0.02)
    assert frames[0][2] > frames[0][0]
