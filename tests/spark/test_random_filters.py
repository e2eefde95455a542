"""``load`` after ``register(spark)`` loses no row: random conditions against the same rows in Spark's memory.

The oracle is a cached frame without files. It gets each condition as a column, not as a filter, so that nothing is
skipped. A condition selects the same rows of the table if the number and the sum of hashes of their keys are equal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakeformat
from lakeformat.spark import register

pytestmark = pytest.mark.spark

TYPES: Final = ("COPY_ON_WRITE", "MERGE_ON_READ")
#: Number of conditions that the oracle evaluates in one query.
_AT_ONCE: Final = 50
_FILES: Final = 12
_ROWS: Final = 30
_SPECIAL: Final = (float("nan"), 0.0, -0.0, float("inf"), float("-inf"))

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("big", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("g", pa.float32()),
        pa.field("s", pa.string()),
        pa.field("b", pa.bool_()),
        pa.field("d", pa.date32()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("m", pa.decimal128(12, 2)),
        pa.field("o", pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string())])),
    ]
)


def make_batches(draw: random.Random) -> Iterator[pa.Table]:
    """Yield inputs whose values lie near one another, so that bounds tell their files apart."""
    for number in range(_FILES):
        ids = range(number * _ROWS, (number + 1) * _ROWS)
        base = draw.randrange(-50, 50)

        def near(make: Callable[[int], Any], base: int = base) -> list[Any]:
            return [None if draw.random() < 0.15 else make(base + draw.randrange(6)) for _ in range(_ROWS)]

        def number_or_special(value: int) -> float:
            return draw.choice(_SPECIAL) if draw.random() < 0.2 else value / 2

        columns = [
            pa.array(ids, pa.int64()),
            pa.array([draw.choice(("p", "q", "r s", "1")) for _ in ids], pa.string()),
            pa.array(near(int), pa.int32()),
            pa.array(near(lambda value: value * 10**12), pa.int64()),
            pa.array(near(number_or_special), pa.float64()),
            pa.array(near(number_or_special), pa.float32()),
            pa.array(near(lambda value: f"{draw.choice(('k', 'K', 'é', ''))}{value:03d}"), pa.string()),
            pa.array(near(lambda value: value % 2 == 0), pa.bool_()),
            pa.array(near(lambda value: 19_000 + value), pa.int32()).cast(pa.date32()),
            pa.array(near(lambda value: value * 86_400_000_000 + 1), pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(near(lambda value: f"{value}.25"), pa.string()).cast(pa.decimal128(12, 2)),
            pa.array(near(lambda value: {"x": value, "y": draw.choice((None, f"y{value}"))}), SCHEMA.field("o").type),
        ]
        yield pa.table(columns, schema=SCHEMA)


class Conditions:
    """Random conditions in Spark's SQL on the columns of `SCHEMA`."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._makers: dict[str, Callable[[], str]] = {
            "n": lambda: str(self._near()),
            "big": lambda: f"{self._near()}000000000000",
            "f": self._float,
            "g": self._float,
            "s": lambda: f"'{self._draw.choice(('k', 'K', 'é', ''))}{self._near():03d}'",
            "d": lambda: f"date_from_unix_date({19_000 + self._near()})",
            "t": lambda: f"timestamp_micros({self._near() * 86_400_000_000 + self._draw.randrange(3)})",
            "m": lambda: f"{self._near()}.{self._draw.choice(('25', '2', '251'))}",
            "id": lambda: str(self._draw.randrange(_FILES * _ROWS)),
            "part": lambda: self._draw.choice(("'p'", "'q'", "'r s'", "'1'", "1", "'z'")),
            "o.x": lambda: str(self._near()),
            "o.y": lambda: f"'y{self._near()}'",
        }

    def make(self, depth: int = 3) -> str:
        """Return a condition."""
        kind = self._draw.random()
        if depth and kind < 0.45:
            return f"({self.make(depth - 1)} {self._draw.choice(('and', 'or'))} {self.make(depth - 1)})"
        if depth and kind < 0.6:
            return f"(not {self.make(depth - 1)})"
        return self._leaf()

    def _near(self) -> int:
        return self._draw.randrange(-55, 60)

    def _float(self) -> str:
        special = ("double('NaN')", "0.0D", "-0.0D", "double('Infinity')", "float('-Infinity')", "null")
        return self._draw.choice(special) if self._draw.random() < 0.3 else f"{self._near() / 2}D"

    def _leaf(self) -> str:
        draw = self._draw
        name = draw.choice(list(self._makers))
        value = self._makers[name]
        forms: tuple[Callable[[], str], ...] = (
            lambda: f"({name} {draw.choice(('=', '<', '<=', '>', '>=', '<>', '<=>'))} {value()})",
            lambda: f"({value()} {draw.choice(('=', '<', '>='))} {name})",
            lambda: f"({name} between {value()} and {value()})",
            lambda: f"({name} {draw.choice(('in', 'not in'))} ({self._list(value)}))",
            lambda: f"({name} is {draw.choice(('null', 'not null'))})",
            lambda: f"(coalesce({name}, {value()}) = {value()})",
            lambda: f"(cast({name} as string) = cast({value()} as string))",
            lambda: f"(if({name} is null, true, {name} > {value()}))",
            lambda: f"(hash({name}) % 3 = 0 and {name} >= {value()})",
        )
        own: dict[str, tuple[Callable[[], str], ...]] = {
            "n": (
                lambda: f"(n + 1 > {self._near()})",
                lambda: f"(abs(n) < {draw.randrange(50)})",
                lambda: f"(cast(n as double) >= {self._float()})",
                lambda: f"(n in ({', '.join(map(str, draw.sample(range(-2000, 2000), 1000)))}))",
            ),
            "f": (lambda: "isnan(f)", lambda: f"(cast(f as int) = {self._near()})", lambda: f"(-f < {self._float()})"),
            "s": (
                lambda: f"(s like '{draw.choice(('k%', '%1', 'k_2%', '', 'K00%'))}')",
                lambda: f"startswith(s, '{draw.choice(('k', 'k0', 'é', ''))}')",
                lambda: f"(length(s) > {draw.randrange(5)})",
                lambda: f"(lower(s) >= {value()})",
            ),
            "b": (),
            "d": (
                lambda: f"(year(d) = {draw.choice((2021, 2022))})",
                lambda: f"(cast(d as timestamp) > {self._time()})",
            ),
            "t": (lambda: f"(cast(t as date) = {self._day()})", lambda: f"(date_trunc('day', t) >= {self._time()})"),
            "m": (lambda: f"(cast(m as int) = {self._near()})",),
        }
        if draw.random() < 0.06:
            return draw.choice(("b", "(not b)", "(b is null)", "(b = true)", "(b <=> false)"))
        return draw.choice((*forms, *own.get(name, ())))()

    def _list(self, value: Callable[[], str]) -> str:
        return ", ".join(value() for _ in range(self._draw.choice((1, 2, 5, 12))))

    def _day(self) -> str:
        return f"date_from_unix_date({self._near()})"

    def _time(self) -> str:
        return f"timestamp_micros({self._near() * 86_400_000_000})"


def judge(rows: DataFrame, conditions: list[str]) -> list[tuple[int, int]]:
    """Return for each condition the number of rows for which it is true, and the sum of hashes of their keys."""
    sums = [
        part
        for condition in conditions
        for part in (f"count_if({condition})", f"coalesce(sum(if({condition}, cast(hash(id) as bigint), 0)), 0)")
    ]
    found = rows.selectExpr(*sums).first()
    assert found is not None
    return list(zip(found[::2], found[1::2], strict=True))


def judge_valid(rows: DataFrame, conditions: list[str]) -> dict[str, tuple[int, int]]:
    """Return the same for the conditions that Spark can evaluate. It cannot cast ``'q'`` to a number, for example."""
    try:
        return dict(zip(conditions, judge(rows, conditions), strict=True))
    except PySparkException:
        middle = len(conditions) // 2
        if not middle:
            return {}
        return judge_valid(rows, conditions[:middle]) | judge_valid(rows, conditions[middle:])


def select(frame: DataFrame, condition: str) -> tuple[int, int]:
    """Return the same of the rows that a filter selects."""
    found = frame.where(condition).selectExpr("count(*)", "coalesce(sum(cast(hash(id) as bigint)), 0)").first()
    assert found is not None
    return found[0], found[1]


def check(spark: SparkSession, folder: Path, table_type: str, seed: int, count: int) -> None:
    """Compare random conditions on a random table."""
    draw = random.Random(seed)
    register(spark)
    options: dict[str, Any] = {
        "table_type": table_type,
        "hoodie.parquet.small.file.limit": 0,
        "lakeformat.compact.auto": False,
    }
    table = lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="part", **options)
    for batch in make_batches(draw):
        table.insert(batch)
    changed = next(make_batches(draw)).slice(0, _ROWS // 2)
    part_of = dict(table.to_arrow(columns=["id", "part"]).to_pandas().itertuples(index=False))
    parts = pa.array([part_of[key] for key in changed["id"].to_pylist()], pa.string())
    table.upsert(changed.set_column(1, SCHEMA.field("part"), parts))
    rows = spark.createDataFrame(table.to_arrow(meta_columns=False)).cache()
    rows.write.partitionBy("part").parquet(str(folder / "plain"))
    plain = spark.read.parquet(str(folder / "plain"))
    frame = spark.read.format("lakehouse").load(str(folder / "t"))
    made = Conditions(draw)
    wrong: list[tuple[str, tuple[int, int], tuple[int, int]]] = []
    hits = judged = 0
    while judged < count:
        conditions = [made.make() for _ in range(_AT_ONCE)]
        for condition, wanted in judge_valid(rows, conditions).items():
            try:
                found = select(frame, condition)
            except PySparkException:  # Spark evaluates what a condition says of partitions alone for all partitions.
                with pytest.raises(PySparkException):
                    select(plain, condition)
                continue
            judged += 1
            hits += 0 < wanted[0] < _FILES * _ROWS
            if found != wanted:
                wrong.append((condition, found, wanted))
    rows.unpersist()
    assert wrong == []
    assert hits > count // 4, "conditions that select all rows or none prove nothing"


@pytest.mark.nightly
@pytest.mark.parametrize("table_type", TYPES)
def test_twenty_conditions_select_the_rows_of_a_full_scan(table_type: str, spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, table_type, 1, 20)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 7))
@pytest.mark.parametrize("table_type", TYPES)
def test_ten_thousand_conditions_select_the_rows_of_full_scans(
    table_type: str, seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    check(spark, tmp_path, table_type, seed, 1000)
