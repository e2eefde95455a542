"""A table with a format beside it, and the steps of its life."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import lakeformat
from lakeformat import Table
from tests.helpers.tables import a_batch, a_schema

__all__ = ["ENCODED", "HIVE_STYLE", "PARTS", "draw_step", "new_followed_table", "some_rows"]

_SCHEMA: Final = a_schema(id="int64", part="string", ts="int64", v="string")
#: Partition values that need care in paths, among them a null.
PARTS: Final = ("plain", "a/b %", "é=:?#", None)


def new_followed_table(folder: Path, form: str, version: int = 6, **options: Any) -> Table:
    """Make a table in the folder ``t`` that a format follows."""
    nulls = {"hoodie.write.set.null.for.missing.columns": True}
    more = {"lakeformat.beside": form, "hoodie.write.table.version": version, **nulls, **options}
    how: dict[str, Any] = {"record_key": "id", "ordering": "ts", "partition_by": "part"} | more
    return lakeformat.create(folder / "t", _SCHEMA, **how)


def some_rows(keys: list[int], time: int) -> pa.Table:
    """Return rows with these keys, whose partitions follow from them."""
    parts = [PARTS[key % len(PARTS)] for key in keys]
    return a_batch(_SCHEMA, id=keys, part=parts, ts=time, v=[f"v{key}.{time}" for key in keys])


def draw_step(table: Table, dice: random.Random, time: int) -> Callable[[], object]:
    """Draw a write, a service or an alteration."""
    keys = sorted(dice.sample(range(40), 6))
    steps: list[Callable[[], object]] = [
        lambda: table.upsert(some_rows(keys, time)),
        lambda: table.insert(some_rows([100 + time], time)),
        lambda: table.delete(where=f"id = {keys[0]}"),
        lambda: table.update({"v": f"u{time}"}, where=f"id > {keys[3]}"),
        lambda: table.insert_overwrite(some_rows(keys[:1], time)),
        lambda: table.cluster(by="ts"),
        lambda: table.clean(commits=2),
        table.rollback,
        lambda: table.restore(dice.choice(table.history(3)).instant_time),
        lambda: table.alter().add(f"c{time}", "int32").execute(),
        lambda: table.merge(some_rows(keys, time)).when_matched_delete().when_not_matched_insert().execute(),
        lambda: table.archive(min_commits=3),
    ]
    return dice.choice(steps)


HIVE_STYLE: Final = {"hoodie.datasource.write.hive_style_partitioning": "true"}
ENCODED: Final = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
