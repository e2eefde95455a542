"""Helpers of the Spark tests: settings of sessions, one way to write and read, the files in a table's folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
#: A table of three columns under the short names of its settings.
FLIGHTS: Final = {"recordkey": "id", "partitionpath": "part", "ordering": "ts"}
FLIGHT_COLUMNS: Final = "id long, part string, ts long, x double"

Rows = list[tuple[Any, ...]]


def flights(session: SparkSession, rows: Rows, tasks: int = 2) -> DataFrame:
    """Return a frame with rows of `FLIGHT_COLUMNS`."""
    return session.createDataFrame(rows, FLIGHT_COLUMNS).repartition(tasks)


def write(rows: DataFrame, path: Path, mode: str = "append", **options: Any) -> None:
    """Save a frame with the options of `FLIGHTS` and with the given options."""
    rows.write.format("lakehouse").options(**FLIGHTS, **options).mode(mode).save(str(path))


def read(session: SparkSession, path: Path, **options: Any) -> DataFrame:
    """Load the table."""
    return session.read.format("lakehouse").options(**options).load(str(path))


def contents(session: SparkSession, path: Path, **options: Any) -> Rows:
    """Return the rows without meta columns, sorted."""
    return sorted(tuple(row) for row in read(session, path, meta_columns=False, **options).collect())


@dataclass(frozen=True)
class Refusal:
    """The error class and the text in the last line of Spark's exception."""

    error: str
    text: str


#: The text that PySpark 4.0 puts before the message of a worker.
_WORKER_OF_4_0 = "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"


def refusal(act: Callable[[], object]) -> Refusal:
    """Run ``act``, which must fail with one of our messages as the last line, except for a state code of Spark."""
    with pytest.raises(PySparkException) as caught:
        act()
    text = re.sub(r"\s+SQLSTATE: \w+$", "", str(caught.value).rstrip()).removeprefix(_WORKER_OF_4_0)
    found = re.fullmatch(r"(?:\[PYTHON_DATA_SOURCE_ERROR\] .*?: )?lakeformat\.(\w+): (.+)", text.splitlines()[-1])
    assert found, text
    assert len(text.splitlines()) <= 2, text
    assert "Traceback" not in text, text
    assert "During handling of the above exception" not in text
    return Refusal(found[1], found[2])


def commits(path: Path) -> list[str]:
    """Return the completed instants, oldest first."""
    names = (file.name for file in (path / ".hoodie").iterdir())
    return sorted(name.partition(".")[0] for name in names if re.fullmatch(r"\d+\.(delta|replace)?commit", name))


def leftovers(path: Path, *, outlived: bool = False) -> list[str]:
    """Return files that a table at rest does not have: stage, markers, pending instants, orphan base files.

    Args:
        outlived: a task may have outlived its job; a later write sweeps what such a task writes into the stage.
    """
    meta = path / ".hoodie"
    ours = ("tmp", "pending") if outlived else ("stage", "tmp", "pending")
    busy = [meta / ".temp", meta / ".heartbeat", *(meta / ".lakeformat" / name for name in ours)]
    found = [file for folder in busy for file in folder.rglob("*") if file.is_file()]
    instants = [file for file in meta.iterdir() if re.match(r"\d+\.", file.name)]
    done = re.compile(r"\d+\.((replace|delta)?commit|rollback)")
    completed = {file.stem for file in instants if done.fullmatch(file.name)}
    found += [file for file in instants if file.name.partition(".")[0] not in completed]
    found += [path / name for name in base_files(path) - committed_files(path)]
    return sorted(str(file.relative_to(path)) for file in found)


def base_files(path: Path) -> set[str]:
    """Return every Parquet file in the partitions of the table."""
    found = (file.relative_to(path) for file in path.rglob("*.parquet"))
    return {str(file) for file in found if file.parts[0] != ".hoodie"}


def committed_files(path: Path) -> set[str]:
    """Return every base file that a completed commit names, read from the JSON of the timeline."""
    stats: list[dict[str, Any]] = []
    for instant in commits(path):
        (file,) = (path / ".hoodie").glob(f"{instant}.*commit")
        written = json.loads(file.read_text())["partitionToWriteStats"]
        stats += [stat for group in written.values() for stat in group]
    return {stat["path"] for stat in stats if stat["path"]}


def run_application(text: str, *arguments: object, cwd: Path) -> str:
    """Run a Python program in a process of its own. Return its output.

    A Spark Connect server of the program takes a port that is free, not Spark's 15002, which only one program can have.
    """
    program = cwd / "application.py"
    program.write_text(text)
    command = [sys.executable, str(program), *map(str, arguments)]
    environment = {**os.environ, **({"SPARK_TESTING": "1"} if '.remote("local' in text else {})}
    run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def parts(frame: DataFrame) -> int:
    """Return the number of partitions that Spark is going to read."""
    return int(frame.rdd.getNumPartitions())
