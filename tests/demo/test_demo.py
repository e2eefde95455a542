"""The main job on few rows, started as a user starts it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeformat.demo.__main__ import checksum, report_text, text_table
from lakeformat.demo.flights import MOST_NEW_FLIGHTS, RECORD_KEY, Flights, load_flights

ROWS = 5000


def run_demo(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lakeformat.demo", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(ROWS)


@pytest.mark.spark
@pytest.mark.slow
def test_main_job_ends_with_three_readers_in_agreement(tmp_path: Path, flights: Flights) -> None:
    run = run_demo("--rows", str(ROWS), "--path", str(tmp_path / "flights"), cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^OK in \d+ s; the table is in ", run.stdout, flags=re.MULTILINE)
    for operation in ("bulk_insert", "upsert", "delete"):
        assert re.search(rf"^\d{{17}}  {operation} \(commit\)$", run.stdout, flags=re.MULTILINE)

    known = ROWS + flights.new
    counts = re.findall(r"^\d{17}  (\w+) +([\d,]+)$", run.stdout, flags=re.MULTILINE)
    assert counts == [
        ("bulk_insert", f"{ROWS:,}"),
        ("upsert", f"{known:,}"),
        ("delete", f"{flights.final.num_rows:,}"),
    ]
    readers = re.findall(r"^(expected|Spark|hudi-rs)\b.* ([\d,]+)  ([0-9a-f]{16}) ", run.stdout, flags=re.MULTILINE)
    expected = checksum(flights.final, flights.final.schema, by=RECORD_KEY)
    assert readers == [(reader, f"{flights.final.num_rows:,}", expected) for reader in ("expected", "Spark", "hudi-rs")]


@pytest.mark.spark
@pytest.mark.parametrize(("rows", "reason"), [("5000", "is not empty"), ("10", "leaves some days without flights")])
def test_demo_refuses_bad_arguments_in_one_line(tmp_path: Path, rows: str, reason: str) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("mine")
    run = run_demo("--rows", rows, "--path", str(tmp_path), cwd=tmp_path)
    assert run.returncode == 2
    assert reason in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["kept.txt"]


def test_every_flight_is_there_once() -> None:
    flights = load_flights()
    assert flights.first.num_rows == 336_776
    assert pc.sum(pc.is_null(flights.first["dep_time"])).as_py() == 8_255
    assert flights.new == MOST_NEW_FLIGHTS
    assert flights.final.num_rows == 336_776 - 8_255 + MOST_NEW_FLIGHTS


def test_the_final_rows_follow_from_the_writes(flights: Flights) -> None:
    # The same answer, by joins on the key instead of filters on the day.
    key, names = list(RECORD_KEY), flights.first.schema.names
    untouched = flights.first.join(flights.revision.select(key), key, join_type="left anti")
    known = pa.concat_tables([untouched.select(names), flights.revision])
    flown = known.filter(pc.field("dep_time").is_valid())
    schema = flights.first.schema
    assert checksum(flown, schema, by=key) == checksum(flights.final, schema, by=key)


def test_revised_flights_are_newer_and_later(flights: Flights) -> None:
    both = flights.first.join(flights.revision, list(RECORD_KEY), right_suffix="_now", join_type="inner")
    assert both.num_rows == flights.revision.num_rows - flights.new > 0
    assert pc.all(pc.greater(both["updated_at_now"], both["updated_at"])).as_py()
    assert pc.unique(pc.subtract(both["dep_delay_now"], both["dep_delay"])).to_pylist() == [15]


ROW = pa.table({"k": [1, 2], "s": ["", None], "n": pa.array([3, 4], pa.int64())})


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        pytest.param(ROW.take([1, 0]), True, id="another order"),
        pytest.param(ROW.set_column(2, "n", pa.array([3, 4], pa.int32())), True, id="another width"),
        pytest.param(ROW.append_column("more", pa.array([0, 0])), True, id="a column that is not compared"),
        pytest.param(ROW.set_column(1, "s", pa.array([None, ""])), False, id="null is not empty"),
        pytest.param(ROW.set_column(2, "n", pa.array([3, 5])), False, id="another value"),
        pytest.param(ROW.slice(0, 1), False, id="a row less"),
    ],
)
def test_checksum_depends_on_values_only(other: pa.Table, equal: bool) -> None:
    same = checksum(other, ROW.schema, by=["k"]) == checksum(ROW, ROW.schema, by=["k"])
    assert same is equal


def test_reports_of_any_shape_are_printed() -> None:
    report = {
        "rows": 12_345,
        "seconds": 1.23456,
        "files": {"added": 3, "replaced": 1},
        "steps": [
            {"step": "ranges", "seconds": 0.0, "after_ranges": 1200},
            {"step": "bloom", "seconds": 0.5, "hits": 7, "files": {"read": 2, "left_out": 3}},
        ],
        "deeper": {"levels": [1, 2]},
        "partitions": ["1", "2"],
        "nothing": [],
    }
    assert report_text(report).splitlines() == [
        "rows 12,345, seconds 1.235",
        "files: added 3, replaced 1",
        "steps:",
        "  step    seconds  counts",
        "  ranges        0  after ranges 1,200",
        "  bloom       0.5  hits 7, files (read 2, left out 3)",
        "deeper:",
        "  levels: 1, 2",
        "partitions: 1, 2",
    ]


def test_empty_table_prints_its_column_names() -> None:
    assert text_table(["a", "long name"], []) == "a  long name"
