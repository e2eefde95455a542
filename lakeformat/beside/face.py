"""What the metadata of another format shows of a table, and what must change so that it shows a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.config.beside_options import FORMATS
from lakeformat.file_system_view.live_files import Portion
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.predicate import ColumnBounds

__all__ = [
    "COMPLETED",
    "HINT",
    "INSTANT",
    "Changes",
    "Face",
    "FaceFormat",
    "FileChanges",
    "Footers",
    "bounded_columns",
    "compare_files",
    "explain_difference",
    "file_paths",
    "folder_columns",
    "sure_bounds",
]

#: Keys under which a version names the newest commit that it shows, and the greatest completion time.
INSTANT: Final = "lakeformat.instant"
COMPLETED: Final = "lakeformat.completed"
#: The file that names Iceberg's newest metadata, unless a catalog does.
HINT: Final = f"{FORMATS['iceberg']}/version-hint.text"


@dataclass(frozen=True, slots=True)
class Face:
    """What another format shows of the table.

    Attributes:
        version: its newest version; -1 if there is none.
        instant_time: instant time of the newest commit that it shows; "" if that is not known.
        completed: greatest completion time of the commits that it shows; "" if that is not known.
        paths: paths of the files that it shows, relative to the table.
        stranger: the program that wrote the newest version; "" if lakeformat did, or there is none.
        stored: what the format's own code has read.
    """

    version: int = -1
    instant_time: str = ""
    completed: str = ""
    paths: frozenset[str] = frozenset()
    stranger: str = ""
    stored: Any = None


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files that a face lacks, and those that it shows although they are not live.

    Attributes:
        added: the lacking files with their bounds.
        removed: paths relative to the table, sorted.
    """

    added: tuple[Portion, ...]
    removed: tuple[str, ...]

    @property
    def added_count(self) -> int:
        """Return the number of files that the face lacks."""
        return sum(portion.files.num_rows for portion in self.added)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a version changes, so that it shows a snapshot.

    Attributes:
        schema: the columns of the table, without Hudi's own.
        columns_changed: whether the face shows other columns.
        operation: the kind of the newest commit.
        first_whole: the first instant whose files are all there; "" if nothing was cleaned.
    """

    snapshot: Snapshot
    schema: pa.Schema
    files: FileChanges
    columns_changed: bool
    operation: str = ""
    first_whole: str = ""

    def __bool__(self) -> bool:
        return bool(self.files) or self.columns_changed

    @property
    def completed(self) -> str:
        """Return the greatest completion time of the commits; "" if there are none."""
        return max((commit.completed_at for commit in self.snapshot.timeline.commits), default="")

    def keeps(self, instant_time: str) -> bool:
        """Tell whether all files of an instant are there: no clean, rollback or restore has deleted one."""
        return instant_time >= self.first_whole and instant_time in self.snapshot.timeline.commit_times


@dataclass(frozen=True, slots=True)
class Footers:
    """What the footers of files say.

    Attributes:
        rows: number of rows of each file, for each portion.
        schemas: the different schemas of the files.
    """

    rows: Sequence[Sequence[int]]
    schemas: frozenset[pa.Schema]


class FaceFormat(Protocol):
    """The metadata of one format beside a table: how its newest version is read, and how one is added."""

    @property
    def name(self) -> str:
        """Return the format's name."""

    @property
    def folder(self) -> str:
        """Return the folder of the metadata in the table, for messages."""

    def read(self) -> Face:
        """Read the newest version.

        Raises:
            CorruptTableError: a file of the metadata is missing or damaged.
        """

    def columns_differ(self, face: Face, snapshot: Snapshot, schema: pa.Schema) -> bool:
        """Tell whether a snapshot has other columns than the face shows."""

    def put(self, face: Face, changes: Changes, footers: Footers) -> int | None:
        """Add a version after the one that was read.

        Return its number; None if another writer has added a version, or may have, so that the face must be read again.

        Args:
            footers: what the added files say.
        """

    def point(self, face: Face) -> None:
        """Let readers find the version that was read, if its writer died before it did so."""

    def delete(self) -> None:
        """Delete the metadata."""


def folder_columns(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the partition columns that only the folders' names hold, not the files."""
    config = snapshot.config
    return tuple(config.partition_fields) if config.drops_partition_columns else ()


def bounded_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the columns whose bounds other formats store."""
    return tuple(
        field.name for field in schema if not (kind_of(field.type).is_nested or kind_of(field.type) is Kind.BYTES)
    )


def file_paths(files: pa.Table) -> pa.Array:
    """Return the path of each file, relative to the table.

    Args:
        files: a table with the columns ``partition_path`` and ``name``.
    """
    folders, names = (files[name].combine_chunks() for name in ("partition_path", "name"))
    return pc.if_else(pc.equal(folders, ""), names, pc.binary_join_element_wise(folders, names, "/"))


def compare_files(portions: Iterable[Portion], shown: frozenset[str]) -> FileChanges:
    """Compare the live base files of a snapshot with the paths that a face shows.

    A base file never changes, and no two have one path, so paths are enough.
    """
    shown_paths = pa.array(sorted(shown), pa.string())
    live: set[str] = set()
    added: list[Portion] = []
    for portion in portions:
        paths = file_paths(portion.files)
        live.update(paths.to_pylist())
        new = pc.invert(pc.is_in(paths, shown_paths))
        if pc.any(new).as_py():
            added.append(_choose(portion, new))
    return FileChanges(tuple(added), tuple(sorted(shown - live)))


def _choose(portion: Portion, flags: pa.Array) -> Portion:
    bounds = {path: _choose_bounds(columns, flags) for path, columns in portion.bounds.items()}
    return Portion(portion.files.filter(flags), bounds)


def _choose_bounds(bounds: ColumnBounds, flags: pa.Array) -> ColumnBounds:
    nans = bounds.nan_count
    return replace(
        bounds,
        minimum=bounds.minimum.filter(flags),
        maximum=bounds.maximum.filter(flags),
        null_count=bounds.null_count.filter(flags),
        nan_count=None if nans is None else nans.filter(flags),
    )


def sure_bounds(bounds: ColumnBounds) -> tuple[pa.Array, pa.Array]:
    """Return smallest and greatest values that hold in each order of floats; null where they do not.

    NaN is greater than all numbers for some readers, and -0 less than 0 or equal to it.
    """
    low, high = bounds.minimum, bounds.maximum
    if kind_of(low.type) is not Kind.FLOAT:
        return low, high
    finite = pc.and_(pc.is_finite(low), pc.is_finite(high))
    sure = pc.and_(finite, pa.array(np.asarray(bounds.nan_free)))
    nothing = pa.scalar(None, low.type)
    return pc.if_else(sure, low, nothing), pc.if_else(sure, high, nothing)


def explain_difference(stored: pa.DataType, wanted: pa.DataType) -> str:
    """Return why readers of other formats may not read values of a stored type as another one; "" if they do.

    They widen int32 to int64, take fields of structs by name, and fields that are missing as null. All other types must
    be equal: a float that became a double has other digits for them than for Hudi.
    """
    return next(_differences(stored, wanted), "")


def _differences(stored: pa.DataType, expected: pa.DataType) -> Iterator[str]:
    kind = kind_of(expected)
    if kind_of(stored) is not kind:
        yield f"{stored}, not {expected}"
    elif kind is Kind.STRUCT:
        fields = {field.name: field.type for field in stored}
        for field in expected:
            if field.name in fields:
                yield from _differences(fields[field.name], field.type)
    elif kind is Kind.MAP:
        yield from _differences(stored.key_type, expected.key_type)
        yield from _differences(stored.item_type, expected.item_type)
    elif kind is Kind.LIST:
        yield from _differences(stored.value_type, expected.value_type)
    elif kind is Kind.TIMESTAMP:
        if (stored.tz is None) is not (expected.tz is None):
            yield f"{stored}, not {expected}"
    elif kind in (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL) and stored not in (expected, *_WIDENED.get(expected, ())):
        yield f"{stored}, not {expected}"


#: Maps a type to the types that readers of other formats widen to it.
_WIDENED = {pa.int64(): (pa.int32(),)}
