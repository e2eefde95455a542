"""SQL statements that Spark and duckdb understand alike, with the rows that each leaves in a small table."""

from __future__ import annotations

from collections.abc import Callable

from lakeformat import InvalidInputError, TableNotFoundError

__all__ = ["FIRST", "REFUSED", "STATEMENTS", "Held"]

Held = dict[int, tuple[str, float | None, int]]  # id -> part, price, ts
FIRST: Held = {at: ("ab"[at % 2], at * 1.5, 1) for at in range(6)}
SOURCE = "(select * from (values (1, 'b', 10.0, 2, 'd'), (2, 'a', 20.0, 2, 'u'), (9, 'b', 90.0, 2, 'i'))"
CHANGES = f"{SOURCE} as v(id, part, price, ts, op)) as s"
ROWS = f"(select id, part, price, ts from {CHANGES[:-5]}) as s"
STATEMENTS: dict[str, tuple[str, Callable[[Held], Held]]] = {
    "update by an expression": (
        "update {t} set price = price * 2 + id, ts = 7 where id > 3 and part = 'a'",
        lambda held: held | {4: ("a", 4 * 1.5 * 2 + 4, 7)},
    ),
    "update with a subquery": (
        "update {t} set price = null where id in (select max(id) from {t})",
        lambda held: held | {5: ("b", None, 1)},
    ),
    "update of all rows": ("update {t} set ts = ts + 1", lambda h: {k: (p, x, ts + 1) for k, (p, x, ts) in h.items()}),
    "delete": ("delete from {t} where id < 2 or part = 'b'", lambda held: {2: held[2], 4: held[4]}),
    "delete by a function": (
        "delete from {t} where length(part) + id > 5",
        lambda held: {k: v for k, v in held.items() if k < 5},
    ),
    "delete from a path": ("delete from lakehouse.`{path}` where id = 3", lambda h: {k: h[k] for k in h if k != 3}),
    "insert of values": (
        "insert into {t} values (7, 'a', 1, 1), (8, 'b', null, 1)",
        lambda held: held | {7: ("a", 1.0, 1), 8: ("b", None, 1)},
    ),
    "insert of named columns": (
        "insert into {t} (ts, id, price, part) select 5, id + 100, price, part from {t} where id = 1",
        lambda held: held | {101: ("b", 1.5, 5)},
    ),
    "insert overwrite takes the partitions of the rows": (
        "insert overwrite {t} select 50, 'a', 5.0, 5",
        lambda held: {k: v for k, v in held.items() if v[0] == "b"} | {50: ("a", 5.0, 5)},
    ),
    "insert into a partition": (
        "insert into {t} partition (part = 'b') select 60, 6.0, 6",
        lambda held: held | {60: ("b", 6.0, 6)},
    ),
    "merge with every clause": (
        "merge into {t} as t using "
        + CHANGES
        + " on t.id = s.id and t.part = s.part when matched and s.op = 'd' then delete "
        "when matched then update set price = t.price + s.price, ts = s.ts "
        "when not matched then insert (id, part, price, ts) values (s.id, upper(s.part), s.price * 2, s.ts)",
        lambda held: {k: v for k, v in held.items() if k != 1} | {2: ("a", 23.0, 2), 9: ("B", 180.0, 2)},
    ),
    "merge of stars": (
        "merge into {t} t using " + ROWS + " on s.id = t.id and s.part = t.part "
        "when matched then update set * when not matched then insert *",
        lambda held: held | {1: ("b", 10.0, 2), 2: ("a", 20.0, 2), 9: ("b", 90.0, 2)},
    ),
    "merge by a column that is no key": (
        "merge into {t} t using (select 'b' as part, 100.0 as plus) s on t.part = s.part "
        "when matched and t.id > 1 then update set price = t.price + s.plus",
        lambda held: held | {3: ("b", 104.5, 1), 5: ("b", 107.5, 1)},
    ),
    "merge not matched by source": (
        "merge into {t} t using " + CHANGES + " on t.id = s.id when not matched by source and t.id > 3 then delete",
        lambda held: {k: v for k, v in held.items() if k <= 3},
    ),
}

REFUSED: dict[str, tuple[str, type[Exception], str]] = {
    "a table nobody named": ("delete from nowhere where id = 1", TableNotFoundError, "its/path"),
    "a key that is set": (
        "update {t} set id = id + 100 where id > 4",
        InvalidInputError,
        "another key|'id' says where",
    ),
    "a partition that is set": ("update {t} set part = 'z'", InvalidInputError, "another key|'part' says where"),
    "an unknown column": ("update {t} set prise = 1", InvalidInputError, "prise"),
    "a star that another column ties": (
        "merge into {t} t using (select id + 1 as id, part, price, ts, id as old from {t}) s on t.id = s.old "
        "when matched then update set id = s.id, price = s.price",
        InvalidInputError,
        "another key|'id' says where",
    ),
    "an insert of a key that is there": (
        "merge into {t} t using " + ROWS + " on t.id = s.id and s.price > 1000 when not matched then insert *",
        InvalidInputError,
        "inserts a row with the key",
    ),
    "an insert of a computed key that is there": (
        "merge into {t} t using " + CHANGES + " on t.id = s.id "
        "when not matched then insert (id, part, price, ts) values (s.id - 8, s.part, 1, 1)",
        InvalidInputError,
        "inserts a row with the key",
    ),
    "too few columns": ("insert into {t} values (1, 'a')", InvalidInputError, "2 "),
    "a row matched twice": (
        "merge into {t} t using (select 1 as id from range(2)) s on t.id = s.id when matched then update set ts = 2",
        InvalidInputError,
        "more than once",
    ),
    "no SQL": ("update {t} where", InvalidInputError, "cannot (read|be computed)"),
}
