"""The judge of layouts: footers and rows of real files, compared with a slow reading of the same question."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from benchmarks.engines.lakeformat_python import Lakeformat
from benchmarks.engines.read_calls import open_by_read_calls
from benchmarks.process_tree import bytes_read
from benchmarks.report import ReadmeError, update_block
from benchmarks.skipping.__main__ import find_better_peers, find_slow_doubles, judge_engine, mean, table
from benchmarks.skipping.data import CASES, NAMES, Case, columns_of, filters_of, write_input
from benchmarks.skipping.judge import files_of
from benchmarks.skipping.layouts import FILES, run
from benchmarks.workload import Variant, prepare

ROWS = 8_192


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_files_to_read_equal_those_found_by_reading_every_row(tmp_path: Path, case: Case) -> None:
    write_input(case, ROWS, tmp_path)
    paths = sorted(tmp_path.glob("*.parquet"))
    files = files_of(paths, case.names)
    columns = columns_of(case, ROWS)
    for filters in filters_of(case, columns, 20):
        verdict = files.verdict(filters)
        read = matching = 0
        for path in paths:
            rows = pq.read_table(path).to_pandas()
            for low, high in zip(filters.low, filters.high, strict=True):
                within = [rows[name].between(a, b) for name, a, b in zip(filters.names, low, high, strict=True)]
                read += all(
                    rows[name].min() <= b and rows[name].max() >= a
                    for name, a, b in zip(filters.names, low, high, strict=True)
                )
                matching += np.logical_and.reduce(within).any()
        assert (verdict.read, verdict.matching) == (read / 160, matching / 160)
        assert 0 < verdict.matching <= verdict.read


def test_boxes_hold_about_their_share_of_the_rows() -> None:
    case = Case("uniform", 2)
    columns = columns_of(case, ROWS)
    for filters, share in zip(filters_of(case, columns, 50), (0.001, 0.01, 0.1, 0.01, 0.01), strict=True):
        held = [
            np.logical_and.reduce([
                (columns[name] >= low) & (columns[name] <= high)
                for name, low, high in zip(filters.names, lows, highs, strict=True)
            ]).mean()
            for lows, highs in zip(filters.low, filters.high, strict=True)
        ]  # fmt: skip
        assert np.mean(held) == pytest.approx(share, rel=0.3)
    assert NAMES[:2] == case.names


@pytest.mark.slow
def test_hilbert_layout_reads_far_fewer_files_than_arrival_order(tmp_path: Path) -> None:
    case = Case("zipf", 2)
    write_input(case, 2 * ROWS, tmp_path / case.name / "input")
    run("lakeformat-hilbert", tmp_path, [case])
    found = judge_engine(case, "lakeformat-hilbert", 2 * ROWS, tmp_path, boxes=20)
    read, matching = mean(found)
    assert found["files"] == pytest.approx(FILES, rel=0.3)  # In files this small, the footer is the larger part.
    assert matching < read < 0.3
    left = json.loads((tmp_path / case.name / "lakeformat-hilbert.json").read_text())["files"]
    assert ds.dataset(left).count_rows() == 2 * ROWS
    text = table({case.name: {"lakeformat-hilbert": found}}, ["lakeformat-hilbert"])
    assert f"| zipf, 2 columns | {100 * read:.2f} ({100 * matching:.2f}), {found['files']} files |" in text


def test_report_lists_cases_in_which_a_peer_reads_fewer_files() -> None:
    ours, theirs = ({"verdicts": {"all": (read, 0.1)}} for read in (0.3, 0.2))
    assert len(find_better_peers({"zipf-2": {"lakeformat-hilbert": ours, "delta": theirs}})) == 1
    assert find_better_peers({"zipf-2": {"lakeformat-hilbert": theirs, "delta": ours}}) == []


def test_report_lists_doubles_that_skip_less_than_integers() -> None:
    few, many = ({"verdicts": {"all": (read, 0.1)}} for read in (0.2, 0.25))
    found = {"uniform-2": {"lakeformat-hilbert": few, "delta": few}, "doubles-2": {"lakeformat-hilbert": many}}
    assert len(find_slow_doubles(found)) == 1
    assert find_slow_doubles({**found, "doubles-2": {"lakeformat-hilbert": few, "delta": many}}) == []


def test_figures_replace_the_block_between_the_markers(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n")
    update_block(readme, "x", "new")
    assert readme.read_text() == "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n"
    with pytest.raises(ReadmeError):
        update_block(readme, "y", "new")


def test_unmapped_files_are_counted(tmp_path: Path) -> None:
    dataset = prepare(tmp_path, Variant(20_000))
    engine = Lakeformat(dataset, tmp_path / "table")
    engine.load(tmp_path / "table")
    size = sum(path.stat().st_size for path in (tmp_path / "table").rglob("*.parquet"))
    assert engine.unmapped().scan() == 20_000
    counts = [bytes_read()]
    for columns in (["x"], None):
        open_by_read_calls(tmp_path / "table").to_arrow(columns=columns, meta_columns=columns is None)
        counts.append(bytes_read())
    narrow, whole = (after - before for before, after in pairwise(counts))
    assert whole > 0.9 * size
    assert narrow < 0.5 * whole
