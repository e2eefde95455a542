"""A table that lakeformat and Apache Hudi write in turn. The oracle is a dict of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakeformat
from tests.helpers.hudi_spark import Hudi

__all__ = ["Model", "SharedTable"]

Model = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class SharedTable:
    """A table at a path that both write.

    Attributes:
        schema: columns ``id``, ``ts``, ``v`` and that of the partition.
        part: the column of the partition.
        parts: its two values, of even and of odd ids.
        known: converts the value that a reader returns to one of these.
    """

    path: Path
    hudi: Hudi
    schema: pa.Schema
    part: str
    parts: Sequence[Any]
    known: Callable[[Any], Any] = lambda value: value

    def rows(self, ids: range, ts: int) -> Model:
        """Return the rows that a write at a time stores for ids."""
        return {n: {"id": n, self.part: self.parts[n % 2], "ts": ts, "v": f"{n}@{ts}"} for n in ids}

    def batch(self, ids: range, ts: int) -> pa.Table:
        """Return the same rows as a table."""
        return pa.Table.from_pylist(list(self.rows(ids, ts).values()), self.schema)

    def assert_both_read(self, model: Model) -> None:
        """Assert that both read the rows of a model, and that ours have the partition's type."""
        ours, theirs = lakeformat.open(self.path).to_arrow(), self.hudi.read(self.path)
        assert ours.schema.field(self.part).type == self.schema.field(self.part).type
        for rows in (ours.to_pylist(), theirs.to_pylist()):
            found = {
                row["id"]: {name: row[name] for name in self.schema.names} | {self.part: self.known(row[self.part])}
                for row in rows
            }
            assert len(found) == len(rows), "a record key is doubled"
            assert found == model

    def write_in_turn(self, table: lakeformat.Table, kind: str, options: Mapping[str, str], where: str) -> None:
        """Let both write a new table in turn, and assert after each turn that both read the same rows.

        Args:
            table: the new table, as lakeformat made it.
            kind: its table type.
            options: those of Hudi's writes.
            where: a condition that holds for the row with id 0 alone.
        """
        job = {**options, "hoodie.datasource.write.table.type": kind}
        table.insert(self.batch(range(8), 1))
        table.upsert(self.batch(range(4, 12), 2))
        table.delete(where=where)
        model = self.rows(range(1, 8), 1) | self.rows(range(4, 12), 2)
        self.assert_both_read(model)
        self.hudi.write(self.path, self.batch(range(2, 6), 3), "upsert", **job)
        model |= self.rows(range(2, 6), 3)
        self.assert_both_read(model)
        lakeformat.open(self.path).upsert(self.batch(range(5, 14), 4))
        model |= self.rows(range(5, 14), 4)
        self.hudi.delete(self.path, self.batch(range(1, 3), 5), **job)
        model = {n: row for n, row in model.items() if n > 2}
        self.assert_both_read(model)
        if kind == "MERGE_ON_READ":
            lakeformat.open(self.path).compact()
            self.assert_both_read(model)
        lakeformat.open(self.path).cluster(by=["v"])
        self.assert_both_read(model)
        self.hudi.write(self.path, self.batch(range(10, 16), 6), "upsert", **job)
        model |= self.rows(range(10, 16), 6)
        lakeformat.open(self.path).insert_overwrite(self.batch(range(1, 7, 2), 7))
        model = {n: row for n, row in model.items() if n % 2 == 0} | self.rows(range(1, 7, 2), 7)
        self.assert_both_read(model)
