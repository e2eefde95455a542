"""The small table of the crash tests (two commits, three partitions), the writes that are made to fail, and a model."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.model.files import BaseFileName, LogFileName
from lakeformat.storage import LocalStorage, Storage
from lakeformat.storage.port import HOODIE, OWN
from lakeformat.timeline.store import TimelineStore
from tests.helpers.faulty import CountingIds, SteppingClock
from tests.helpers.tables import a_schema

__all__ = [
    "MOVING",
    "NEXT",
    "SMALL_ROW_GROUPS",
    "WRITES",
    "WRITES_BY_NIGHT",
    "Model",
    "Write",
    "assert_whole",
    "copy_of",
    "grow_old",
    "leftovers",
    "make_template",
    "open_at",
    "rows_of",
]

SCHEMA = a_schema(id="int64", region="string", v="string")

#: Row groups of two rows, so that a write copies those that it does not touch.
SMALL_ROW_GROUPS: dict[str, object] = {"lakeformat.parquet.row.group.rows": 2}

Model = dict[int, tuple[str, str]]  # id -> (region, v)


@dataclass(frozen=True)
class Write:
    """One write: an operation on some ids. ``v`` is the value that distinguishes the rows of this write."""

    operation: str
    ids: tuple[int, ...]
    v: str

    @property
    def rows(self) -> pa.Table:
        regions = [self.region(id_) for id_ in self.ids]
        return pa.table([list(self.ids), regions, [self.v] * len(self.ids)], schema=SCHEMA)

    def region(self, id_: int) -> str:
        """Return the partition of a row. A write that moves rows uses another partition than all other writes."""
        return _region(id_ + 1 if self.operation == "moving upsert" else id_)

    def run(self, table: lakeformat.Table) -> None:
        """Run the write."""
        match self.operation:
            case "update":
                table.update({"v": self.v}, where=self.where)
                return
            case "delete where":
                table.delete(where=self.where)
                return
            case "delete partitions":
                table.delete_partitions(sorted({_region(id_) for id_ in self.ids}))
                return
            case "sorted bulk_insert":
                table.bulk_insert(self.rows, sort_columns=["v", "id"])
                return
            case "merge":
                merge = table.merge(self.rows).when_matched_delete("source.id = 3").when_matched_update(["v"])
                merge.when_not_matched_insert("id <> 77").execute()
                return
            case "moving upsert":
                options, context = table.options.with_values(**{"hoodie.index.type": "GLOBAL_SIMPLE"}), table.context
                lakeformat.Table(context.storage, options, clock=context.clock, ids=context.ids).upsert(self.rows)
                return
            case "copying upsert":
                options, context = table.options.with_values(**SMALL_ROW_GROUPS), table.context
                lakeformat.Table(context.storage, options, clock=context.clock, ids=context.ids).upsert(self.rows)
                return
        rows = self.rows.select(["id", "region"]) if self.operation == "delete" else self.rows
        getattr(table, self.operation)(rows)

    @property
    def writes_files(self) -> bool:
        """Tell whether the write makes data files."""
        return self.operation != "delete partitions"

    @property
    def where(self) -> str:
        """Return the condition that selects the ids."""
        return f"id in ({', '.join(map(str, self.ids))})"

    def applied(self, model: Model) -> Model:
        """Return the rows after the write, given the rows before."""
        ours = {id_: (self.region(id_), self.v) for id_ in self.ids}
        match self.operation:
            case "delete" | "delete where":
                return {id_: row for id_, row in model.items() if id_ not in ours}
            case "delete partitions":
                gone = {_region(id_) for id_ in self.ids}
                return {id_: row for id_, row in model.items() if row[0] not in gone}
            case "overwrite":
                return ours
            case "insert_overwrite":
                brought = {_region(id_) for id_ in self.ids}
                return {id_: row for id_, row in model.items() if row[0] not in brought} | ours
            case "merge":
                return {id_: row for id_, row in (model | ours).items() if id_ not in {3, 77}}
            case "update":
                return model | {id_: row for id_, row in ours.items() if id_ in model}
            case _:
                return model | ours


def _region(id_: int) -> str:
    return f"r{id_ % 3}"


#: Each write touches two of three partitions. Upsert and the inserts also open new file groups.
WRITES = (
    Write("upsert", (1, 3, 4, 21, 24), "upserted"),
    Write("insert", (30, 31, 33, 34), "inserted"),
    Write("bulk_insert", (40, 42, 43), "bulk"),
    Write("delete", (0, 1, 3), "deleted"),
    Write("overwrite", (1, 50, 51), "overwritten"),
    Write("insert_overwrite", (1, 3, 54, 55), "overwritten"),
    Write("update", (0, 1, 3, 77), "updated"),
    Write("delete where", (0, 1, 3, 77), "deleted"),
    Write("merge", (1, 3, 4, 21, 24, 77), "merged"),
    Write("delete partitions", (0, 1), "deleted"),
    Write("sorted bulk_insert", (43, 40, 42), "sorted"),
)
#: The same writes; all except the upsert are marked as slow.
UPSERT_FIRST = [pytest.param(write, marks=() if write.operation == "upsert" else pytest.mark.slow) for write in WRITES]
#: The writes as parameters of long tests: every run takes those whose code paths differ most, a night all.
WRITES_BY_NIGHT = [
    pytest.param(write, marks=() if write.operation in {"insert", "overwrite"} else pytest.mark.nightly)
    for write in WRITES
]
#: A write that moves rows out of one file group into others of another partition, and that adds one row.
MOVING = Write("moving upsert", (0, 1, 6, 21), "moved")
NEXT = Write("upsert", (2, 3, 4, 5, 60, 61, 62), "next")

_NUMBERS = itertools.count()
_NO_PACKING = {"hoodie.parquet.small.file.limit": 0}
_PAST = (Write("bulk_insert", tuple(range(9)), "first"), Write("upsert", (0, 4, 8, 9), "second"))


def open_at(storage: Storage, name: str, options: Mapping[str, object] | None = None) -> lakeformat.Table:
    """Open the table with the same clock and ids in every run. ``name`` makes the ids of two writers different."""
    return lakeformat.Table(storage, resolve(options or {}), clock=SteppingClock(), ids=CountingIds(name))


def make_template(
    folder: Path,
    past: Sequence[Write] = _PAST,
    options: Mapping[str, object] = _NO_PACKING,
    version: str = "6",
    table_type: str = "COPY_ON_WRITE",
    more: Mapping[str, str] | None = None,
) -> tuple[Path, Model]:
    """Create a table with two commits, three partitions and several file groups in each. Return its folder and rows.

    Args:
        past: the writes of the table's past.
        options: options of these writes.
        more: options that create the table.
    """
    path = folder / "template"
    made = {"hoodie.write.table.version": version, "table_type": table_type, **(more or {})}
    lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", **made)
    model: Model = {}
    table = open_at(LocalStorage(str(path)), "template", options)
    for write in past:
        write.run(table)
        model = write.applied(model)
    return path, model


def copy_of(template: Path, folder: Path) -> LocalStorage:
    """Copy the table to a new path: commits are cached by path."""
    path = folder / f"t{next(_NUMBERS)}"
    shutil.copytree(template, path)
    return LocalStorage(str(path))


def grow_old(root: Path) -> None:
    """Set the files of pending instants and heartbeats to an old time, so that their writers count as dead."""
    patterns = (
        "*.requested",
        "*.inflight",
        "timeline/*.requested",
        "timeline/*.inflight",
        ".heartbeat/*",
        ".lakeformat/**/*",
    )
    for path in [path for pattern in patterns for path in (root / ".hoodie").glob(pattern)]:
        os.utime(path, (1, 1))


def rows_of(storage: Storage) -> Model:
    """Return the rows that a new reader sees. Fail if a key comes twice."""
    rows = lakeformat.Table(storage).to_arrow(meta_columns=False)
    ids, regions, vs = (rows.column(name).to_pylist() for name in SCHEMA.names)
    assert len(set(ids)) == len(ids), "a key is in two rows"
    return dict(zip(ids, zip(regions, vs, strict=True), strict=True))


def leftovers(storage: LocalStorage) -> list[str]:
    """Return everything that must be gone after a recovery: pending instants, orphan files, markers, claims, stages."""
    store = TimelineStore(storage)
    timeline = store.load()
    archived = store.read_archived()
    commits = [store.read_commit(instant) for instant in timeline.commits]
    commits += [metadata for _, metadata in archived.commits(archived.completed_in(""))]
    stats = [stat for metadata in commits for stat in metadata.all_stats()]
    named = {path for stat in stats for path in (stat.path, *dict(stat.cdc_stats))}
    root = Path(storage.root)
    files = {str(p.relative_to(root)) for p in root.rglob("*.parquet") if BaseFileName.match(p.name)}
    files |= {str(p.relative_to(root)) for p in root.rglob("*.cdc")}
    if timeline.layout.has_completion_times:  # In layout 1 they stay: a command block after them rolls their rows back.
        files |= {str(p.relative_to(root)) for p in root.rglob("*.log.*") if LogFileName.match(p.name)}
    return [
        *(timeline.layout.file_name(instant) for instant in timeline.pending),
        *sorted(files - named),
        *_below(storage, f"{HOODIE}/.temp", f"{HOODIE}/.heartbeat", f"{OWN}/pending", f"{OWN}/stage"),
    ]


def assert_whole(storage: LocalStorage, expected: Model) -> None:
    """Check that a new reader sees these rows, that nothing is left over, and that `check` finds nothing."""
    assert rows_of(storage) == expected
    assert leftovers(storage) == []
    assert str(lakeformat.Table(storage).check()) == "nothing is wrong"


def _below(storage: Storage, *folders: str) -> Iterable[str]:
    return (entry.path for folder in folders for entry in storage.list(folder))
