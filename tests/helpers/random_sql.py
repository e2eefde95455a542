"""Random statements of DuckDB's SQL about a table ``t`` and rows ``other``, and the rows that they start from."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from tests.helpers.tables import a_schema

__all__ = ["COLUMNS", "other_rows", "random_change", "random_query", "refusals", "rows_as_text", "start_rows"]

COLUMNS = a_schema(
    id="int64",
    part="string",
    Name="string",
    order="int32",
    x="float64",
    d=pa.decimal128(10, 2),
    ts=pa.timestamp("us", "UTC"),
    day="date32",
    tags=pa.list_(pa.float64()),
)
_FLOATS = [0.0, -0.0, math.nan, math.inf, 1.5, -2.5, 3e9, None]


def start_rows(random: Random, ids: range) -> pa.Table:
    """Return rows with every kind of value that engines treat differently."""
    rows = [
        {
            "id": each,
            "part": random.choice("abc"),
            "Name": random.choice(["ann", "Bob", "", "O'Hara", "2.7", None]),
            "order": random.choice([*range(6), None]),
            "x": random.choice(_FLOATS),
            "d": random.choice([Decimal("1.05"), Decimal("-3.10"), None]),
            "ts": random.choice(
                [dt.datetime(2023, 12, 31, hour, tzinfo=dt.timezone.utc) for hour in (2, 14, 20)] + [None]
            ),
            "day": random.choice([dt.date(2023, 12, 31), dt.date(2024, 1, 1), None]),
            "tags": random.choice([None, [], [0.0], [-0.0, None], [math.nan]]),
        }
        for each in ids
    ]
    return pa.Table.from_pylist(rows, COLUMNS)


def other_rows(random: Random) -> pa.Table:
    """Return a source that shares some keys and, for natural joins, the names of three columns."""
    ids = random.sample(range(40), 12)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "order": pa.array([random.choice([0, 1, 2, None]) for _ in ids], pa.int32()),
            "part": [random.choice("abc") for _ in ids],
            "y": pa.array([random.choice(_FLOATS) for _ in ids], pa.float64()),
        }
    )


def rows_as_text(rows: pa.Table) -> list[str]:
    """Return rows as sorted texts. NaN equals itself; -0.0 is 0.0, because duckdb does not update one to the other."""
    return sorted(repr(tuple(map(_plain, row.values()))) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, float):
        return value + 0.0
    return value.astimezone(dt.timezone.utc) if isinstance(value, dt.datetime) and value.tzinfo else value


_CONDITIONS = [
    "x > 0",
    "x = -0.0",
    "isnan(x)",
    "x is distinct from 0",
    "not (x > 1)",
    "x between -3 and 2",
    "x <> 'nan'::double",
    "ts < '2024-01-01'",
    "ts >= timestamp '2023-12-31 23:00:00'",
    "ts::date = date '2024-01-01'",
    "extract(hour from ts) < 12",
    "day = '2024-01-01'",
    "day < ts",
    '"order" in (1, 3, null)',
    '"ORDER" not in (2, 4)',
    '"order" = 2.5',
    "id % 3 = 0",
    "id < 12 and part = 'a'",
    "ID >= 20",
    "id = 7",
    "part <> 'b'",
    "Name ilike 'b%'",
    '"name" is null',
    "Name = 'O''Hara'",
    "try_cast(Name as int) = 3",
    "d * 3 > 3.15",
    "len(tags) = 1",
    "tags = [0.0::double]",
    "id in (select id from other where y > 0)",
    "exists (select 1 from other o where o.id = t.id and o.part = t.part)",
    '(select count(*) from t as z where z."order" = t."order") > 4',
    "id in (select id from t natural join other)",
    "true",
]
_VALUES = {
    "x": [
        "x * 2",
        "-0.0::double",
        "'nan'",
        "null",
        "(select max(y) from other where isfinite(y))",
        '"order" / 2',
        "1/3",
    ],
    '"order"': ["x", "length(Name)", '"order" + 1', "2.5", "Name", "null", "cast(d as int)"],
    "Name": ["upper(Name)", "ts::varchar", "id", "concat(part, Name)"],
    "d": ["d + 1.005", "x", "123456789012", "id"],
    "ts": ["ts + interval 1 day", "'2024-03-01 12:00:00'", "day", "'2024-02-30'"],
    "day": ["ts", "day + 1", "'nix'"],
    "tags": ["list_append(tags, 1)", "[x]", "null"],
    "id": ["id", "id + 100"],
    "part": ["'b'", "part"],
}
_QUERIES = [
    "select * from t where {c}",
    "select id, x from t where {c} and {d}",
    "from t select count(*), count(x), sum(id), min(ts), max(d)",
    'select part, count(distinct "order"), bool_and({c}) from t group by all',
    "select * from t natural join other",
    "select * from t natural left join other where {c}",
    "select t.id, y from t join other using (id) where {c}",
    'select * exclude (tags), x as "select" from t where {c}',
    "select columns('(id|x)') from t where {c}",
    "with t as (select id from other) select * from t",
    'select id, "Name" from t where {c} union all by name select id from other',
    "select t from t where {c}",
    "select cast(x as int) from t where {c}",
    "select id, rank() over (partition by part order by x nulls first, id) from t",
    "select id from t where {c} except select id from other",
    "select a.id, b.id from t a asof join t b on a.part = b.part and a.id > b.id",
    "select x, y from t positional join (select y from other limit 0)",
]
_MERGES = [
    "when matched then update set x = s.y",
    'when matched and {m} then delete when matched then update set x = s.y, "order" = s."order" + 1',
    "when matched and {m} then update set Name = 'm', tags = [s.y] when not matched then insert (id, part, x) "
    "values (s.id, s.part, s.y)",
    "when not matched by source and t.id < 9 then delete when matched then do nothing",
    "when not matched by source and t.id % 5 = 0 then update set x = -0.0::double",
    "when not matched and s.y > 0 then insert by name (id, part) values (s.id, 'c')",
]


def random_query(random: Random) -> str:
    """Return a query with a single right answer."""
    return random.choice(_QUERIES).replace("{c}", _condition(random)).replace("{d}", _condition(random))


def random_change(random: Random, new_id: int) -> str:
    """Return an update, delete, merge or insert. ``new_id`` is an id that no row has."""
    return random.choice([_update, _update, _delete, _merge, _merge, _insert])(random, new_id)


def _condition(random: Random) -> str:
    first, second = random.choices(_CONDITIONS, k=2)
    return random.choice([first, first, f"({first} or {second})", f"not coalesce({first}, false)"])


def _update(random: Random, _: int) -> str:
    names = random.sample(list(_VALUES), random.choice([1, 1, 2]))
    names = [name for name in names if name not in {"id", "part"} or random.random() < 0.2] or ["x"]
    sets = ", ".join(f"{name} = {random.choice(_VALUES[name])}" for name in names)
    if random.random() < 0.2:
        more = random.choice(["o.y is not null", "t.id > 5"])
        return f"update t set x = o.y from other o where o.id = t.id and {more}"
    return f"update t set {sets} where {_condition(random)}"


def _delete(random: Random, _: int) -> str:
    if random.random() < 0.2:
        return "delete from t using other o where o.id = t.id and o.part = t.part"
    return f"delete from t where {_condition(random)} and id % 4 <> {random.randrange(4)}"


def _merge(random: Random, _: int) -> str:
    on = random.choice(["t.id = s.id", "t.id = s.id and t.part = s.part", 't.id = s.id and s."order" is not null'])
    when = random.choice(_MERGES).replace("{m}", random.choice(["t.x > s.y", "s.part = 'a'", "t.ts < '2024-01-01'"]))
    return f"merge into t using other s on {on} {when}"


def _insert(random: Random, new_id: int) -> str:
    return random.choice(
        [
            f"insert into t (id, part, x, ts) values ({new_id}, 'a', -0.0::double, '2024-01-01')",
            f"insert into t by name select {new_id} as id, 'b' as part, 2.5 as \"order\"",
            f"insert into t select {new_id}, part, Name, x, x, d, day, ts, tags from t where id = 3",
        ]
    )


def refusals() -> str:
    """Tell whether a statement that duckdb runs may be refused: rows would move, or keys are not unique."""
    return "says where a row lies|another key|which another row has|more than once"
