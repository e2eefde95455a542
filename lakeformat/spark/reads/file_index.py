"""A file index of Spark in Python: Spark's planner asks it which files a scan must read.

Spark asks for every scan that it plans, with the filters of that scan: filters of a frame, SQL over a view, each side
of a union or a join. `LakehouseFileIndex` answers with the files that lakeformat's own plan of these filters keeps. So
a filter skips files by the file index and by partition values, as in plain Python.

Two kinds of filters arrive. Data filters are hints, because Spark applies them to the rows again. Filters on declared
partition columns are not applied again, so they are applied exactly here, by Spark's own evaluation of the expression.

All files are known when the index is made. A later commit changes nothing, and if the plan fails, all files are read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final

from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.files import BaseFile
from lakeformat.predicate import Always, And, Predicate
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.session import UNCUT, plan_read
from lakeformat.spark.reads.catalyst import filters_to_predicate
from lakeformat.spark.reads.jvm import SparkJvm, status_bytes, written_ms
from lakeformat.storage.port import Storage

__all__ = ["FilePruner", "IndexedFolder", "LakehouseFileIndex"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Number of filters whose files a frame remembers.
_REMEMBERED: Final = 16


@dataclass
class FilePruner:
    """Chooses the files of a frame that may hold a row which a filter selects, by the plan of plain Python.

    Attributes:
        storage, snapshot: the table at the frame's instant.
        query: the columns and the condition of the frame.
    """

    storage: Storage
    snapshot: Snapshot
    query: ReadQuery
    _live: int = field(init=False)
    _known: dict[bytes, frozenset[str]] = field(init=False, default_factory=dict)
    _lock: Lock = field(init=False, default_factory=Lock)

    def __post_init__(self) -> None:
        self._live = self.snapshot.live.count

    def predicate_of(self, filters: Sequence[Any]) -> Predicate:
        """Convert Spark's filters to a predicate on all columns of the table."""
        full = readable_schema(self.snapshot.columns(self.storage.location), meta_columns=True)
        return filters_to_predicate(filters, full)

    def keep(self, predicate: Predicate) -> frozenset[str] | None:
        """Return the paths of the base files that may hold a row for which the predicate is true; None for all files.

        A base file with log files is kept if a row of either may match: the row may be one that log files replace.

        None is also returned if the plan fails, or if it no longer sees all files of the frame's instant.
        """
        if predicate in (Always(True), And(())):
            return None
        key = pickle.dumps(predicate)  # The text of a predicate leaves out values of long lists.
        with self._lock:
            if key in self._known:
                return self._known[key]
        try:
            query = replace(self.query, predicate=And((self.query.predicate, predicate)))
            plan = plan_read(self.storage, self.snapshot, query, split_bytes=UNCUT)
        except Exception as error:
            _LOG.warning("%s: this query skips no files, because planning failed: %s", self.storage.location, error)
            return None
        if plan.files != self._live:  # Old files were deleted, and the file index had to be replaced by a listing.
            return None
        kept = frozenset(part.path for split in plan.splits for part in split.parts)
        with self._lock:
            while len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[key] = kept
        return kept


@dataclass(frozen=True)
class IndexedFolder:
    """The files of a folder.

    Attributes:
        values: place of the folder's partition values in the index; 0 if there are none.
        files: the files.
    """

    values: int
    files: Sequence[BaseFile]


class LakehouseFileIndex:
    """The answers of a file index (`lakeformat.spark.reads.planner.PlannerIndex`), given in any thread."""

    def __init__(
        self,
        jvm: SparkJvm,
        location: str,
        folders: Sequence[IndexedFolder],
        partitions: Any,
        values: Any,
        pruner: FilePruner,
        shown: str,
    ) -> None:
        """Create an index.

        Args:
            jvm: the session's JVM.
            location: the table's folder or URL, as Hadoop spells it.
            folders: all files of the relation.
            partitions: the declared partition columns, as Spark's struct type.
            values: a sequence of Scala with the partition values of folders.
            pruner: chooses the files of a query.
            shown: the location that plans show, and that begins the names that ``DataFrame.inputFiles()`` returns.
        """
        self._jvm, self._location, self._shown, self._folders = jvm, location, shown, folders
        self.partitions, self._values, self._pruner = partitions, values, pruner
        self.size_bytes = sum(file.size_bytes for folder in folders for file in folder.files)
        self.roots = jvm.one(jvm.path(shown))
        self._lock = Lock()
        self._all: Any = None

    def list_files(self, partition_filters: Any, data_filters: Any) -> Any:
        """Return the partition directories that a scan with these filters must read."""
        exact, hints = list(_items(partition_filters)), list(_items(data_filters))
        kept = self._pruner.keep(self._pruner.predicate_of([*exact, *hints]))
        return self._jvm.select(self._directories(kept), exact, self.partitions)

    def _directories(self, kept: frozenset[str] | None) -> Any:
        if kept is not None:
            chosen = [IndexedFolder(f.values, [file for file in f.files if file.path in kept]) for f in self._folders]
            return self._in_jvm([folder for folder in chosen if folder.files])
        with self._lock:
            if self._all is None:
                self._all = self._in_jvm(self._folders)
            return self._all

    def _in_jvm(self, folders: Sequence[IndexedFolder], location: str | None = None) -> Any:
        root = location or self._location
        statuses = [[_status(root, file) for file in folder.files] for folder in folders]
        return self._jvm.directories(self._jvm.take(self._values, [folder.values for folder in folders]), statuses)

    def input_files(self) -> Any:
        """Return the URLs of all files."""
        if self._shown == self._location:
            return self._jvm.addresses(self._directories(None))
        return self._jvm.addresses(self._in_jvm(self._folders, self._shown))

    @cached_property
    def identity(self) -> str:
        """A text that is the same for indexes of the same files: files are never changed in place."""
        paths = "\n".join(file.path for folder in self._folders for file in folder.files)
        text = json.dumps([self._location, self.partitions.json(), paths])
        return f"lakeformat {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _status(location: str, file: BaseFile) -> bytes:
    return status_bytes(f"{location}/{file.path}", file.size_bytes, written_ms(file.name.instant_time))


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(number) for number in range(sequence.size()))
