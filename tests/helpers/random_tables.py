"""Tables of every type with random rows, files and layouts, and random filters on them.

Hypothesis draws the values of each column; a seed makes rows and filters from them. Drawing every cell of every row
would take longer than reading the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lakeformat import Table
from lakeformat.predicate import (
    Always,
    And,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from tests.helpers.filter_strategies import LITERALS, VALUES
from tests.helpers.skipping_tables import edit_footers, new_table
from tests.helpers.thrift_footer import Struct

Row = dict[str, Any]

WALL = pa.timestamp("us")
#: Path -> type of the values in rows. "w" and "g" are narrower in the first commit; "late" is added later.
PATHS: dict[str, pa.DataType] = {
    "i": pa.int32(),
    "w": pa.int64(),
    "g": pa.float64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "m": pa.decimal128(12, 3),
    "t": pa.string(),
    "b": pa.binary(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "wall": WALL,
    "flag": pa.bool_(),
    "late": pa.string(),
    "s.a": pa.int64(),
    "s.in.t": pa.string(),
    "s.late": pa.float64(),
}
INNER = [pa.field("a", pa.int64()), pa.field("in", pa.struct([("t", pa.string())]))]
PLAIN = [pa.field(path, of) for path, of in PATHS.items() if "." not in path and path not in {"w", "g", "late"}]
ID = [pa.field("id", pa.int64()), pa.field("p", pa.string()), pa.field("pd", pa.date32())]
FIRST = pa.schema([*ID, ("w", pa.int32()), ("g", pa.float32()), *PLAIN, ("s", pa.struct(INNER))])
LAST = pa.schema(
    [*ID, ("w", pa.int64()), ("g", pa.float64()), *PLAIN, ("s", pa.struct([*INNER, ("late", pa.float64())])),
     ("late", pa.string())]
)  # fmt: skip

LONG = "long text that outgrows what other writers keep of it as a bound: " * 2
naive = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)) | st.just(datetime(1970, 1, 1))
VALUES_OF: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **VALUES,
    WALL: naive,
    pa.string(): VALUES[pa.string()] | st.integers(0, 99).map(lambda n: f"{LONG}{n:02}"),
}
LITERALS_OF: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **VALUES_OF,
    **{of: literals for of, literals in LITERALS.items() if of not in (pa.string(), pa.binary(), pa.bool_())},
}


@dataclass(frozen=True)
class Draw:
    """The choices of Hypothesis. Everything else follows from the seed."""

    seed: int
    values: Mapping[str, Sequence[Any]]
    narrow: Mapping[str, Sequence[Any]]
    literals: Mapping[str, Sequence[Any]]
    partition: str | None
    layout: str
    commits: int
    statistics: bool


def draws() -> st.SearchStrategy[Draw]:
    def some(of: st.SearchStrategy[Any], at_least: int, at_most: int) -> st.SearchStrategy[list[Any]]:
        return st.lists(of, min_size=at_least, max_size=at_most)

    return st.builds(
        Draw,
        st.integers(0, 2**32),
        st.fixed_dictionaries({path: some(VALUES_OF[of], 1, 5) for path, of in PATHS.items()}),
        st.fixed_dictionaries({"w": some(VALUES[pa.int32()], 1, 3), "g": some(VALUES[pa.float32()], 1, 3)}),
        st.fixed_dictionaries({path: some(LITERALS_OF[of], 0, 3) for path, of in PATHS.items()}),
        st.sampled_from([None, "p", "pd", "p,pd"]),
        st.sampled_from(["sorted", "shuffled", "one value a file", "clustered"]),
        st.integers(2, 3),
        st.integers(0, 3).map(bool),
    )


class RandomTable:
    """A table in memory and its rows as dictionaries."""

    def __init__(self, draw: Draw) -> None:
        self._draw, self._random = draw, Random(draw.seed)
        self._columns = self._random.sample(sorted(PATHS), 2)  # The columns of the layout.
        partition = {"partitionpath": draw.partition} if draw.partition else {}
        options = {"hoodie.write.set.null.for.missing.columns": "true", **partition}
        self.table: Table = new_table(FIRST, **options, **{"lakeformat.parquet.row.group.rows": 4})
        self.rows: dict[int, Row] = {}
        for commit in range(draw.commits):
            self._write(first=commit == 0)
            if commit == 0 and draw.commits > 1:  # The next commit makes doubles of the floats, as Hudi by their texts.
                for row in self.rows.values():
                    row["g"] = None if row["g"] is None else float(str(np.float32(row["g"])))
        if draw.layout == "clustered":
            curve = self._random.choice(["linear", "z-order", "hilbert"])
            self.table.cluster(self._columns, curve=curve, target_file_bytes=self._random.choice([10_000, 10_000_000]))
        if not draw.statistics:
            edit_footers(self.table, self._forget, which=slice(self._random.randrange(2), None))

    def _write(self, *, first: bool) -> None:
        new = [self._row(len(self.rows) + n, first) for n in range(self._random.randint(4, 12))]
        if not first and self._random.random() < 0.5:
            changed = self._random.sample(sorted(self.rows), 2)
            new += [self._row(key, first) for key in changed]
            write = self.table.upsert
        else:
            write = self.table.insert
        new = self._laid_out(new)
        schema = FIRST if first else LAST
        write(pa.Table.from_pylist(new, schema))
        self.rows.update((row["id"], row) for row in new)

    def _laid_out(self, rows: list[Row]) -> list[Row]:
        if self._draw.layout == "sorted":
            return sorted(rows, key=lambda row: [repr(_cell(row, path)) for path in self._columns])
        if self._draw.layout == "one value a file":
            path = self._columns[0].partition(".")[0]
            return [{**row, path: rows[0].get(path)} if path != "late" else row for row in rows]
        return rows

    def _row(self, key: int, first: bool) -> Row:
        values = {**self._draw.values, **(self._draw.narrow if first else {})}

        def pick(path: str) -> Any:
            return None if self._random.random() < 0.25 else self._random.choice(values[path])

        row = {path: pick(path) for path in PATHS if "." not in path}
        struct = {"a": pick("s.a"), "in": {"t": pick("s.in.t")} if pick("flag") is not None else None}
        row["s"] = struct if first else {**struct, "late": pick("s.late")}
        if self._random.random() < 0.2:
            row["s"] = None
        if first:
            del row["late"]
        # The partition of a key never changes.
        return {"id": key, "p": f"p{key % 2}", "pd": date(2024, 1, 1 + key % 2), **row}

    def _forget(self, path: str, statistics: Struct) -> None:
        if self._random.random() < 0.5:
            for field in self._random.sample(range(1, 7), 3):
                statistics.pop(field, None)

    def filter(self) -> Predicate:
        """Return a filter tree of up to five leaves."""
        return self._tree(self._random.choice([1, 1, 2, 2, 3, 5]))

    def _tree(self, leaves: int) -> Predicate:
        if self._random.random() < 0.2:
            return Not(self._tree(leaves))
        if leaves == 1:
            return self._leaf()
        left = self._random.randint(1, leaves - 1)
        combine = self._random.choice([And, Or])
        return combine((self._tree(left), self._tree(leaves - left)))

    def _leaf(self) -> Predicate:
        choice, random = self._random.choice, self._random.random()
        if random < 0.02:
            return Always(choice([True, False]))
        if random < 0.1:
            return choice([
                Comparison("p", choice(["=", "<=>", "!=", "<", ">="]), choice(["p0", "p1", "p2", "p", None])),
                Comparison("pd", choice(["=", "!=", "<", ">="]), date(2024, 1, choice([1, 2, 3]))),
                In("p", ("p1", choice([None, "p2"]))),
                Comparison("id", choice(["=", "<", ">"]), choice(sorted(self.rows))),
            ])  # fmt: skip
        path = choice(sorted(PATHS))
        literals = [*self._draw.values[path], *self._draw.narrow.get(path, ()), *self._draw.literals[path]]
        if random < 0.2:
            return IsNull(path)
        if PATHS[path] == pa.string() and random < 0.55:
            return self._of_text(path, choice(self._draw.values[path]))
        if random < 0.4:
            count = choice([1, 2, 3, 12])
            listed = [choice(literals) for _ in range(count)] + ([None] if self._random.random() < 0.2 else [])
            return In(path, tuple(listed))
        value = None if self._random.random() < 0.03 else choice(literals)
        return Comparison(path, choice(["=", "<=>", "!=", "<", "<=", ">", ">="]), value)

    def _of_text(self, path: str, text: str) -> Predicate:
        start = self._random.randint(0, len(text))
        end = self._random.randint(start, len(text))
        kind = self._random.choice([StartsWith, EndsWith, Contains, Like, Like])
        if kind is StartsWith:
            return StartsWith(path, text[:end])
        if kind is EndsWith:
            return EndsWith(path, text[start:])
        if kind is Contains:
            return Contains(path, text[start:end])
        pieces = [text[: min(end, 5)].replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_"), "%", "_", "%"]
        return Like(path, "".join(pieces[: self._random.randint(1, 4)]))


def _cell(row: Row, path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = None if value is None else value.get(part)
    return value
