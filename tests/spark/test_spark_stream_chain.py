"""The chain of docs/examples/stream_chain.py is killed repeatedly and ends like a single run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).resolve().parents[2] / "docs" / "examples" / "stream_chain.py"
REGIONS = ("north", "south", "west")


def run(folder: Path, kill_after: str | None = None) -> None:
    """Run the program to its end, or kill it and its child processes as soon as it has printed a line."""
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[1])}
    command = [sys.executable, str(PROGRAM), str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line.strip())
            if line.strip() == kill_after:
                os.killpg(process.pid, signal.SIGKILL)
                break
        process.stdout.read()
    assert process.returncode == (-signal.SIGKILL if kill_after else 0), seen


def add_file(folder: Path, number: int, chance: random.Random) -> list[tuple[str, str, int, int]]:
    """Add a file of readings. Some are late, and silver must not take these for newer."""
    rows = [
        (
            f"s{chance.randrange(20)}",
            chance.choice(REGIONS),
            number * 10 + chance.randrange(-30, 10),
            chance.randrange(99),
        )
        for _ in range(10)
    ]
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("sensor", "region", "ts", "value"), map(list, columns), strict=True)))
    (folder / "files").mkdir(exist_ok=True)
    pq.write_table(table, folder / "files" / f"{number:03}.parquet")
    return rows


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        pytest.param(3, ["silver 0"], marks=pytest.mark.nightly),
        pytest.param(
            50, [f"{name} {at}" for at in (0, 7, 23, 46) for name in ("bronze", "silver")], marks=pytest.mark.nightly
        ),
    ],
)
def test_killed_stream_chain_ends_with_the_rows_of_a_batch_run(
    files: int, kills: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(files)
    rows: list[tuple[str, str, int, int]] = []
    at = 0
    for kill in sorted(kills, key=lambda each: int(each.split()[1])):
        while at <= int(kill.split()[1]) + 3:  # The program has more to do.
            rows += add_file(tmp_path, at, chance)
            at += 1
        run(tmp_path, kill_after=kill)  # It asserts that SIGKILL ended the program.
    while at < files:
        rows += add_file(tmp_path, at, chance)
        at += 1
    run(tmp_path)
    assert lakeformat.open(tmp_path / "bronze").to_arrow(["ts"]).num_rows == len(rows)
    newest: dict[str, tuple[int, str, int]] = {}
    for sensor, region, ts, value in rows:
        if sensor not in newest or ts >= newest[sensor][0]:
            newest[sensor] = (ts, region, value)
    silver = lakeformat.open(tmp_path / "silver").to_arrow(["sensor", "ts"]).to_pylist()
    assert {row["sensor"]: row["ts"] for row in silver} == {sensor: row[0] for sensor, row in newest.items()}
    totals: Counter[str] = Counter()
    for row in lakeformat.open(tmp_path / "silver").to_arrow(["region", "value"]).to_pylist():
        totals[row["region"]] += row["value"]
    assert Counter(json.loads((tmp_path / "totals.json").read_text())["totals"]) == totals
    record_property("kills of a whole chain of queries", len(kills))
