"""One frame and one view, used in every way: the rows are those of the same use on rows that Spark itself holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from functools import partial
from itertools import count, product
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.window import Window

from lakeformat import create
from lakeformat.spark import LakehouseTable
from lakeformat.spark.pushdown import PUSHDOWN, guarded_frame
from lakeformat.spark.types import arrow_schema

pytestmark = pytest.mark.spark

SCHEMA = "id long, i long, s string, d double, m decimal(10,2), at timestamp, p struct<a:long>"
_NUMBERS = count()


def row(number: int) -> tuple[Any, ...]:
    """Return a row: letters a to d by tens; every seventh row has nulls, and 33 has a NaN."""
    if number % 7 == 6:
        return (number, number, "abcd"[number // 10], None, None, None, None)
    moment = datetime(2024, 1, 1 + number // 10, number % 10, tzinfo=timezone.utc)
    double = float("nan") if number == 33 else number / 2
    return (number, number, "abcd"[number // 10], double, Decimal(number) / 4, moment, (number * 2,))


ROWS = [row(number) for number in range(40)]


@dataclass
class Use:
    """A session, and a function that reads the table again in it."""

    session: SparkSession
    read: Callable[[], DataFrame]
    _views: list[str] = field(default_factory=list)

    def view(self) -> str:
        """Create a temporary view of a new frame, and return its name."""
        return self.name(self.read())

    def name(self, frame: DataFrame) -> str:
        """Create a temporary view of the frame, and return its name."""
        self._views.append(f"v{next(_NUMBERS)}")
        frame.createOrReplaceTempView(self._views[-1])
        return self._views[-1]

    def sql(self, text: str, **names: str) -> Any:
        """Return the sorted rows of a query. Names of views are in braces."""
        return rows(self.session.sql(text.format(**names)))

    @contextmanager
    def conf(self, key: str, value: str) -> Iterator[None]:
        """Change a setting of the session within the block."""
        before = self.session.conf.get(key, None)
        self.session.conf.set(key, value)
        try:
            yield
        finally:
            self.session.conf.unset(key) if before is None else self.session.conf.set(key, before)


def rows(frame: DataFrame) -> list[str]:
    """Return the rows as sorted text, because NaN equals nothing and null has no order."""
    return sorted(str(tuple(row)) for row in frame.collect())


def whole_after_filtered(use: Use) -> Any:
    frame = use.read()
    return frame.count(), frame.where("i < 5").count(), frame.count(), len(frame.collect())


def only_an_or(use: Use) -> Any:
    frame = use.read()
    return frame.where("i < 5").count(), rows(frame.where("i < 0 or s = 'd'").select("id", "s"))


def filters_in_a_union(use: Use) -> Any:
    frame = use.read()
    both = frame.where("s = 'a'").union(frame.where("s = 'b'")).union(frame.where("d > 18"))
    return rows(both.groupBy("s").count())


def self_join(use: Use) -> Any:
    frame = use.read()
    few = frame.where("i < 5").select("id", "s")
    return few.crossJoin(frame.select(functions.col("s").alias("z"))).count(), few.join(frame, "id").count()


def scalar_subqueries(use: Use) -> Any:
    v = use.view()
    return use.sql(
        "select (select count(*) from {v} where s = 'a') a, (select max(i) from {v} where i >= 35) b, "
        "(select count(*) from {v}) n, (select sum(i) from {v} where s = 'c') c",
        v=v,
    )


def a_view(use: Use) -> Any:
    v = use.view()
    return [
        use.sql("select id from {v} {where}", v=v, where=where)
        for where in ("where s = 'c'", "", "where m = 5.25", "where i > 37")
    ]


def a_view_made_by_sql(use: Use) -> Any:
    v, w = use.view(), f"w{next(_NUMBERS)}"
    use.sql("create temporary view {w} as select id, s, i from {v} where i >= 10", v=v, w=w)
    return [
        use.sql("select * from {w} {where}", w=w, where=where)
        for where in ("where s = 'b'", "", "where s = 'd' or i = 21")
    ]


def a_view_over_a_view(use: Use) -> Any:
    v = use.view()
    w = use.name(use.session.table(v).where("i < 30").select("id", "s"))
    x = use.name(use.session.table(w).where("s <> 'a'"))
    return (
        use.sql("select * from {x} where s = 'b'", x=x),
        use.sql("select * from {x}", x=x),
        use.sql("select id from {v}", v=v),
    )


def a_cached_frame(use: Use) -> Any:
    frame = use.read()
    cached = frame.where("s = 'b'").cache()
    try:
        return frame.where("i < 3").count(), cached.count(), rows(cached.where("i = 15")), rows(cached), frame.count()
    finally:
        cached.unpersist()


def from_threads(use: Use) -> Any:
    frame = use.read()
    conditions = ["s = 'a'", "s = 'd'", "i between 12 and 14", "d < 3"]
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda text: rows(frame.where(text).select("id")), conditions * 2))


def collected_twice(use: Use) -> Any:
    frame = use.read()
    first, second = frame.where("s = 'a'"), frame.where("s = 'b'")
    return [rows(each.select("id")) for each in (first, second, first, frame, second)] + [first.count()]


def explained_then_another_then_run(use: Use) -> Any:
    frame = use.read()
    first, second = frame.where("s = 'a'"), frame.where("s = 'b'")
    planned = first._jdf.queryExecution().executedPlan().toString()
    return bool(planned), second.count(), rows(first), rows(second), rows(first)


def without_adaptive_execution(use: Use) -> Any:
    with use.conf("spark.sql.adaptive.enabled", "false"):
        return filters_in_a_union(use), self_join(use)


def outer_joins(use: Use) -> Any:
    frame = use.read()
    left, right = frame.where("s = 'a'").select("id", "s"), frame.where("i >= 5").select("id", "i")
    found = [rows(left.join(right, "id", how)) for how in ("full_outer", "left", "right", "left_anti", "left_semi")]
    inner = frame.select("id", "d").join(right, "id", "left").where("i > 20")  # Spark turns it into an inner join.
    return found, rows(inner), rows(frame.join(left.withColumnRenamed("s", "z"), "id", "left").where("z is null"))


def correlated_subqueries(use: Use) -> Any:
    v = use.view()
    return (
        use.sql("select id from {v} x where exists (select 1 from {v} y where y.i = x.i + 30 and y.s = 'd')", v=v),
        use.sql("select id from {v} x where i = (select max(i) from {v} y where y.s = x.s) and i > 5", v=v),
        use.sql("select id from {v} where s = 'a' and id not in (select id from {v} where i > 4)", v=v),
        use.sql(
            "select x.id, y.i from {v} x, lateral (select i from {v} y where y.i = x.i - 10) y where x.s = 'b'", v=v
        ),
    )


def few_columns(use: Use) -> Any:
    frame = use.read()
    return rows(frame.select("d").where("i < 5")), rows(frame.select("s").distinct()), frame.select("s").count()


def contradictions_and_constants(use: Use) -> Any:
    frame = use.read()
    texts = [
        "i = 5 and i = 6",
        "1 = 1",
        "1 = 0",
        "cast(null as boolean)",
        "s is null or s is not null",
        "i = 5 and i <=> 5",
        "i = i",
    ]
    return [frame.where(text).count() for text in texts], frame.limit(0).count(), len(frame.limit(35).collect())


def odd_literals(use: Use) -> Any:
    frame = use.read()
    texts = ["d = double('nan')", "d > 1e9", "d is null", "m in (0.25, null)", "m > 9.1", "not (d <= 18)", "p.a = 44"]
    texts += ["at = timestamp'2024-01-02 03:00:00Z'", "at > '2024-01-04 05:00:00'", "p is null", "i in (1, 39)"]
    return [rows(frame.where(text).select("id")) for text in texts]


def many_filters(use: Use) -> Any:
    """Use more filters in one query than a frame keeps apart."""
    frame = use.read()
    parts = [frame.where(f"i = {number}").select("id") for number in range(0, 39)]
    union = parts[0]
    for part in parts[1:]:
        union = union.union(part)
    return rows(union), rows(frame.where("i = 39").select("id"))


def other_ways_to_run(use: Use) -> Any:
    frame = use.read()
    some = frame.where("s = 'b'").select("id")
    iterated = sorted(row[0] for row in some.toLocalIterator())
    return frame.where("i < 3").count(), sorted(some.rdd.map(lambda row: row[0]).collect()), iterated, some.isEmpty()


def expressions_over_it(use: Use) -> Any:
    frame = use.read()
    window = frame.where("i > 8").withColumn("n", functions.count("*").over(Window.partitionBy("s")))
    odd = frame.where(functions.rand(1) < 2).where("s = 'c'")
    rolled = frame.where("i < 25").rollup("s").agg(functions.countDistinct("i"), functions.countDistinct("d"))
    less = frame.select("id").exceptAll(frame.where("i > 5").select("id"))
    return (
        rows(window.select("id", "n")),
        odd.count(),
        rows(rolled),
        rows(less),
        rows(frame.subtract(frame.where("i>1"))),
    )


def switched_while_in_use(use: Use) -> Any:
    """Change the session's setting after the first plans were made."""
    frame = use.read()
    found: list[Any] = [frame.where("s = 'a'").count()]
    for value in ("false", "true", "false"):
        with use.conf(PUSHDOWN, value):
            found += [rows(frame.where("s = 'b'").select("id")), frame.count(), rows(frame.where("i > 37"))]
    return found


def a_global_view_of_another_session(use: Use) -> Any:
    frame, name = use.read(), f"g{next(_NUMBERS)}"
    frame.createOrReplaceGlobalTempView(name)
    other = use.session.newSession()
    mine = use.sql("select id from global_temp.{g} where s = 'a'", g=name)
    theirs = [rows(other.table(f"global_temp.{name}").where(text)) for text in ("s = 'b'", "true")]
    return mine, theirs, use.sql("select count(*) from global_temp.{g}", g=name)


USES = [
    whole_after_filtered, only_an_or, filters_in_a_union, self_join, scalar_subqueries, a_view, a_view_made_by_sql,
    a_view_over_a_view, a_cached_frame, collected_twice, explained_then_another_then_run,
    without_adaptive_execution, outer_joins, correlated_subqueries, few_columns, contradictions_and_constants,
    odd_literals, many_filters, other_ways_to_run, expressions_over_it, switched_while_in_use,
    a_global_view_of_another_session, from_threads,
]  # fmt: skip
WAYS = ("guarded", "load", "table")
#: Uses that take seconds in each way.
_LONG_USES = (many_filters, outer_joins, expressions_over_it, correlated_subqueries, odd_literals)
#: These use more filters than a frame keeps apart, and each is planned again; `test_pushed_filters.py` tests that rule.
LONG = {(many_filters, "guarded", True)}


def cases() -> Iterator[Any]:
    """Yield all uses with pushed filters: every second use in one way first.

    Nights add those without pushdown, and the long ones.
    """
    for (at, use), way, pushes in product(enumerate(USES), WAYS, (True, False)):
        by_night = not pushes or (use, way, pushes) in LONG or (use in _LONG_USES and WAYS[at % len(WAYS)] != way)
        marks = [pytest.mark.nightly] if by_night else []
        if use in _LONG_USES or WAYS[at % len(WAYS)] != way or at % 2:
            marks.append(pytest.mark.slow)
        yield pytest.param(use, way, pushes, marks=marks, id=f"{use.__name__}-{way}-{'on' if pushes else 'off'}")


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Create a table of the rows in four files, one for each letter."""
    path = str(tmp_path_factory.mktemp("uses") / "t")
    frame = spark.createDataFrame(ROWS, SCHEMA)
    whole = frame.toArrow() if hasattr(frame, "toArrow") else None
    assert whole is not None
    made = create(path, arrow_schema(frame.schema), record_key="id", **{"hoodie.parquet.small.file.limit": 0})
    for start in range(0, 40, 10):
        made.bulk_insert(whole.slice(start, 10))
    return path


NAMES = [name.split()[0] for name in SCHEMA.split(", ")]
OPTIONS = {"columns": ",".join(NAMES), "lakeformat.read.split.bytes": "1"}


def reading(way: str, session: SparkSession, table: str) -> DataFrame:
    """Read the table in one of the ways of users."""
    if way == "table":
        return LakehouseTable.forPath(session, table).read(NAMES, via="native")
    if way == "guarded":
        return guarded_frame(session, table, OPTIONS)
    return session.read.format("lakehouse").options(**OPTIONS).load(table)


@pytest.fixture(scope="module")
def judged() -> dict[Any, Any]:
    """Return an empty cache from a use to the answer of Spark alone."""
    return {}


@pytest.mark.parametrize(("use", "way", "pushes"), list(cases()))
def test_use_returns_the_rows_of_spark(
    use: Callable[[Use], Any],
    way: str,
    pushes: bool,
    spark: SparkSession,
    registered: SparkSession,
    table: str,
    judged: dict[Any, Any],
) -> None:
    if use not in judged:
        judged[use] = use(Use(spark, lambda: spark.createDataFrame(ROWS, SCHEMA)))
    session = registered if pushes else spark
    assert use(Use(session, partial(reading, way, session, table))) == judged[use]
