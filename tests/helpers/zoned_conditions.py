"""Rows with times near the ends of days and near changes of clocks, and random conditions on them."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa

from tests.helpers.tables import a_schema

ZONES: Final = (
    "UTC", "America/New_York", "Asia/Kathmandu", "Europe/Berlin", "Pacific/Apia", "America/St_Johns", "-11:30", "GMT+8",
    "America/Sao_Paulo",
)  # fmt: skip
SCHEMA: Final = a_schema(
    id="int64",
    at=pa.timestamp("us", "UTC"),
    wall=pa.timestamp("us"),
    day="date32",
    n="int32",
    x="float64",
    text="string",
    s=pa.struct([("at", pa.timestamp("us", "UTC"))]),
)
#: Conditions that depend on the zone, each in another way. The last two are quick to plan and hard to widen.
HARD: Final = [
    "at >= '2024-03-10'", "at = timestamp '2024-03-10 02:30:00'", "day < timestamp '2024-03-31 03:00:00Z'",
    "not (at between '2024-03-10' and date '2024-03-11')", "s.at > '2011-12-30' and n < 4",
    "at in ('2024-01-01 00:00:00', '1970-01-01', '2024-10-27 02:30:00') or day = date '2024-01-01'",
]  # fmt: skip
#: Samoa skipped this day: it and the next begin at the same moment.
SKIPPED_DAY: Final = [f"day {op} timestamp '2011-12-30 00:00:00'" for op in ("=", "<=", ">=", "<", ">", "!=")]
#: Near these times, clocks were put forward or back, or a day was left out.
_NEAR: Final = (
    datetime(2024, 3, 10, 7), datetime(2024, 11, 3, 6), datetime(2024, 3, 31, 1), datetime(2024, 10, 27, 1),
    datetime(2011, 12, 30, 10), datetime(2018, 11, 4, 3), datetime(2018, 2, 18, 2), datetime(2024, 1, 1),
    datetime(1970, 1, 1), datetime(2006, 10, 29, 2, 31),
)  # fmt: skip
_STEPS: Final = (
    timedelta(0), timedelta(microseconds=1), timedelta(minutes=1), timedelta(minutes=30), timedelta(hours=1),
    timedelta(hours=5, minutes=45), timedelta(hours=11, minutes=30), timedelta(hours=14), timedelta(days=1),
)  # fmt: skip


def _moment(chance: random.Random) -> datetime:
    return chance.choice(_NEAR) + chance.choice((-1, 1)) * chance.choice(_STEPS)


def rows(count: int = 120, seed: int = 1) -> pa.Table:
    """Return rows of `SCHEMA`, some with nulls."""
    chance = random.Random(seed)
    cells = []
    for at in range(count):
        moment, wall, day = _moment(chance), _moment(chance), _moment(chance).date()
        cells.append({
            "id": at,
            "at": None if at % 13 == 5 else moment.replace(tzinfo=timezone.utc),
            "wall": None if at % 13 == 6 else wall,
            "day": day,
            "n": at % 7,
            "x": chance.choice((-0.0, 0.0, 1.5, float("nan"), None)),
            "text": chance.choice(("2024-01-01", "a", "", None)),
            "s": None if at % 13 == 7 else {"at": _moment(chance).replace(tzinfo=timezone.utc)},
        })  # fmt: skip
    return pa.Table.from_pylist(cells, SCHEMA)


def _text_of(moment: datetime, chance: random.Random) -> str:
    forms = ["%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S.%f"]
    return moment.strftime(chance.choice(forms))


def _literal(column: str, chance: random.Random) -> str:
    moment = _moment(chance)
    day = f"{moment:%Y-%m-%d}"
    match column:
        case "n":
            return chance.choice(("3", "2.5", "4L", "1e0", "'3'"))
        case "x":
            return chance.choice(("0", "-0.0D", "1.5", "'1.5'", "1"))
        case "text":
            return chance.choice(("'a'", "'2024-01-01'", "''"))
        case "day":
            zoned = f"timestamp '{moment:%Y-%m-%d %H:%M:%S}{chance.choice(('', 'Z', '+05:45'))}'"
            return chance.choice((f"'{day}'", f"date '{day}'", f"timestamp '{day} 00:00:00'", zoned))
        case "wall":
            return chance.choice((f"'{_text_of(moment, chance)}'", f"date '{day}'"))
        case _:
            text = _text_of(moment, chance)
            zone = "" if len(text) < 18 else chance.choice(("", "", "Z", "-05:00"))
            return chance.choice((f"'{text}{zone}'", f"timestamp '{text}{zone}'", f"date '{day}'"))


def _leaf(chance: random.Random) -> str:
    column = chance.choice(("at", "at", "at", "wall", "day", "day", "s.at", "n", "x", "text"))
    one, other = _literal(column, chance), _literal(column, chance)
    same = _literal("at", chance) if column != "s.at" else one
    return chance.choice((
        f"{column} {chance.choice(('=', '<', '<=', '>', '>=', '!=', '<=>'))} {one}",
        f"{one} {chance.choice(('<', '>=', '='))} {column}",
        f"{column} between {one} and {other}",
        f"{column} in ({one}, {other})",
        f"{column} not in ({one}, null)",
        f"{column} is null",
        f"at >= {same}",
    ))  # fmt: skip


def conditions(count: int, seed: int) -> list[str]:
    """Return random conditions."""
    chance, found = random.Random(seed), []
    while len(found) < count:
        one, other = _leaf(chance), _leaf(chance)
        found.append(chance.choice((one, one, f"not ({one})", f"{one} and {other}", f"{one} or not ({other})")))
    return found
