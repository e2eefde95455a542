"""A program that changes rows of its own keys by all verbs for some seconds and runs table services in between.

``python -m tests.helpers.busy_writer <path> <number> <seconds> <options as JSON>`` prints what the table must hold of
its keys, and how many of its changes another writer has refused. Any other error ends it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

import lakeformat
from lakeformat.errors import LockTimeoutError, WriteConflictError
from tests.helpers.tables import a_schema

__all__ = ["ALWAYS", "SCHEMA", "first_key"]

SCHEMA: Final = a_schema(id="int64", region="string", v="int64")
#: Number of keys of each writer, and of those that are in each of its commits, with one value.
_KEYS, ALWAYS = 40, 4


def first_key(writer: int) -> int:
    """Return the first of the writer's keys."""
    return 1000 * writer


class BusyWriter:
    """A writer of a table.

    Attributes:
        held: the rows that the table must have of this writer's keys, by key.
        refused: number of its changes that were refused because of another writer.
        done: number of rounds.
    """

    def __init__(self, path: str, number: int, options: Mapping[str, str]) -> None:
        self.table = lakeformat.open(path, **options)
        self.dice = random.Random(number)
        self.first = first_key(number)
        self.held: dict[int, int] = {}
        self.refused = self.done = 0
        self.services: list[Callable[[], object]] = [self.table.clean, self.table.archive, self.table.repair]
        if "BUCKET" not in options.values():  # Clustering would move rows out of their buckets.
            self.services.append(lambda: self.table.cluster(by="v"))
        if self.table.config.takes_logs:
            self.services += [self.table.compact, self.table.run_compaction]

    def run(self, seconds: float) -> None:
        """Make round after round."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.done += 1
            self._write()
            if self.done % 3 == 0:
                self._delete()
            if self.dice.random() < 1 / 4:
                self._try(self.dice.choice(self.services))

    def _write(self) -> None:
        """Give the first keys and some others the number of the round, or all keys that there are."""
        others = self.dice.sample(range(ALWAYS, _KEYS), 5)
        ids = [self.first + at for at in (*range(ALWAYS), *others)]
        given, table = self._rows(ids), self.table
        verb = self.dice.choice(["upsert", "upsert", "merge", "update"] if self.held else ["upsert"])
        if verb == "upsert":
            is_done = self._try(lambda: table.upsert(given))
        elif verb == "merge":
            is_done = self._try(lambda: table.merge(given).when_matched_update().when_not_matched_insert().execute())
        else:
            ids = list(self.held)
            own = f"id >= {self.first} and id < {self.first + _KEYS}"
            is_done = self._try(lambda: table.update({"v": self.done}, own))
        if is_done:
            self.held |= dict.fromkeys(ids, self.done)

    def _delete(self) -> None:
        gone = [self.first + at for at in self.dice.sample(range(ALWAYS, _KEYS), 4)]
        by_condition = self.dice.random() < 1 / 2
        keys, where = (None, f"id in {tuple(gone)}") if by_condition else (self._rows(gone), None)
        if self._try(lambda: self.table.delete(keys, where=where)):
            self.held = {id_: value for id_, value in self.held.items() if id_ not in gone}

    def _rows(self, ids: list[int]) -> pa.Table:
        columns: dict[str, list[Any]] = {"id": ids, "region": [f"r{id_ % 3}" for id_ in ids]}
        return pa.table({**columns, "v": [self.done] * len(ids)}, SCHEMA)

    def _try(self, change: Callable[[], object]) -> bool:
        try:
            change()
        except (LockTimeoutError, WriteConflictError):
            self.refused += 1
            return False
        return True


if __name__ == "__main__":
    path, number, seconds, options = sys.argv[1:]
    writer = BusyWriter(path, int(number), json.loads(options))
    writer.run(float(seconds))
    print(json.dumps({"held": writer.held, "refused": writer.refused, "done": writer.done}))
