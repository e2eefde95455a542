"""The live files of a snapshot as columns. Planning uses the columns and creates objects only for the chosen files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.model.files import BaseFile, BaseFileName, FileSlice, LogFile
from lakeformat.predicate import ColumnBounds, Predicate

__all__ = [
    "FILE_COLUMNS",
    "FilesByPartition",
    "ListedFiles",
    "ListedSlices",
    "ListedTable",
    "LiveFiles",
    "Portion",
    "SlicesByPartition",
    "StoredStatistics",
    "file_columns",
    "file_objects",
    "log_slice_flags",
    "select_slices",
]

#: Columns of a table of files. ``instant_time`` is the instant in the file's name. ``rows`` and ``row_groups`` are
#: counts; null if they are not known.
FILE_COLUMNS: Final = pa.schema(
    [
        pa.field("partition_path", pa.string()),
        pa.field("name", pa.string()),
        pa.field("instant_time", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("row_groups", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Portion:
    """Some live files, in order of partition path and file id.

    Attributes:
        files: a table with `FILE_COLUMNS`, a row per file slice. For a slice with log files, name and instant are null,
            and the size is the sum of all its files.
        bounds: mapping of column path to bounds with an entry per slice.
        slices: an entry per slice: the slice if it has log files, else None. The attribute itself is None if no slice
            has log files.
    """

    files: pa.Table
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)
    slices: Sequence[FileSlice | None] | None = None


def log_slice_flags(portion: Portion) -> npt.NDArray[np.bool_]:
    """Return a flag for each row of a portion: whether the slice has log files."""
    if portion.slices is None:
        return np.zeros(portion.files.num_rows, np.bool_)
    return np.array([piece is not None for piece in portion.slices], np.bool_)


class LiveFiles(Protocol):
    """The newest committed slice of each file group that is not replaced."""

    @property
    def count(self) -> int:
        """Return the number of file slices."""

    @property
    def has_logs(self) -> bool:
        """Tell whether any slice has log files. If not, each slice is its base file."""

    @property
    def size_bytes(self) -> int:
        """Return the total size of all slices in bytes."""

    def partitions(self) -> Sequence[str]:
        """Return the partition paths that have files, sorted."""

    def of_partition(self, partition_path: str) -> tuple[BaseFile, ...]:
        """Return the base files of one partition, sorted by file id."""

    def bounds_in(self, partition_path: str, column: str) -> ColumnBounds | None:
        """Return the bounds of a column in a partition, an entry per file as in `of_partition`; None if not known."""

    def portions(self, columns: Sequence[str] = (), predicate: Predicate | None = None) -> Iterator[Portion]:
        """Yield all files in portions.

        Args:
            columns: paths of the columns whose bounds the portions contain, if they are known.
            predicate: portions without a match may be left out.
        """


class StoredStatistics(Protocol):
    """Column bounds that are stored apart from the list of files."""

    def read(self, files: pa.Table, columns: Sequence[str]) -> Mapping[str, ColumnBounds]:
        """Return a mapping of column path to bounds with an entry per file.

        Args:
            files: a table with `FILE_COLUMNS`.
            columns: paths of columns.
        """

    def read_slices(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> Mapping[str, ColumnBounds]:
        """Return a mapping of column path to bounds with an entry per slice, which cover all files of the slice."""


def file_columns(files: Sequence[BaseFile]) -> pa.Table:
    """Convert file objects to a table with `FILE_COLUMNS`. Its counts of rows and row groups are null."""
    return _columns([file.partition_path for file in files], files, [file.size_bytes for file in files])


def _columns(paths: Sequence[str], files: Sequence[BaseFile | None], sizes: Sequence[int]) -> pa.Table:
    nothing = pa.nulls(len(files), pa.int64())
    columns = [
        pa.array(paths, pa.string()),
        pa.array([str(file.name) if file else None for file in files], pa.string()),
        pa.array([file.name.instant_time if file else None for file in files], pa.string()),
        pa.array(sizes, pa.int64()),
        nothing,
        nothing.cast(pa.int32()),
    ]
    return pa.Table.from_arrays(columns, schema=FILE_COLUMNS)


def file_objects(files: pa.Table) -> tuple[BaseFile, ...]:
    """Convert a table with `FILE_COLUMNS` to file objects, in about 3 microseconds per file."""
    columns = (files.column(name).to_pylist() for name in ("partition_path", "name", "size_bytes"))
    return tuple(BaseFile(path, BaseFileName.parse(name), size) for path, name, size in zip(*columns, strict=True))


@dataclass(frozen=True)
class ListedFiles:
    """Live base files that a listing found, sorted by partition path and file id. Their column bounds are not known.

    Memory: one object per file.
    """

    files: tuple[BaseFile, ...]

    @cached_property
    def _by_partition(self) -> Mapping[str, tuple[BaseFile, ...]]:
        grouped: dict[str, list[BaseFile]] = {}
        for file in self.files:
            grouped.setdefault(file.partition_path, []).append(file)
        return {partition: tuple(files) for partition, files in grouped.items()}

    @property
    def count(self) -> int:
        """Return the number of files."""
        return len(self.files)

    @property
    def has_logs(self) -> bool:
        """Return False: a listing without log files has only base files."""
        return False

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def partitions(self) -> Sequence[str]:
        """Return the partition paths that have files, sorted."""
        return tuple(self._by_partition)

    def of_partition(self, partition_path: str) -> tuple[BaseFile, ...]:
        """Return the files of one partition, sorted by file id."""
        return self._by_partition.get(partition_path, ())

    def bounds_in(self, partition_path: str, column: str) -> ColumnBounds | None:
        """Return None: a listing gives no bounds."""
        return None

    def portions(self, columns: Sequence[str] = (), predicate: Predicate | None = None) -> Iterator[Portion]:
        """Yield all files as one portion."""
        yield Portion(file_columns(self.files))


@dataclass(frozen=True)
class ListedTable:
    """Live base files that the metadata table lists.

    Memory: about 100 bytes per file.

    Attributes:
        table: a table with `FILE_COLUMNS`, sorted by partition path and file id.
        statistics: the column bounds; None if they are not known.
    """

    table: pa.Table
    statistics: StoredStatistics | None = None

    @cached_property
    def _ranges(self) -> Mapping[str, tuple[int, int]]:
        """Return the first row and the number of rows of each partition path."""
        folders = self.table["partition_path"].combine_chunks().dictionary_encode()
        _, starts, counts = np.unique(np.asarray(folders.indices), return_index=True, return_counts=True)
        return dict(
            zip(folders.dictionary.to_pylist(), zip(starts.tolist(), counts.tolist(), strict=True), strict=True)
        )

    @property
    def count(self) -> int:
        """Return the number of files."""
        return int(self.table.num_rows)

    @property
    def has_logs(self) -> bool:
        """Return False: there are only base files."""
        return False

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return pc.sum(self.table["size_bytes"]).as_py() or 0

    def partitions(self) -> Sequence[str]:
        """Return the partition paths that have files, sorted."""
        return tuple(self._ranges)

    def of_partition(self, partition_path: str) -> tuple[BaseFile, ...]:
        """Return the files of one partition, sorted by file id."""
        return file_objects(self.table.slice(*self._ranges.get(partition_path, (0, 0))))

    def bounds_in(self, partition_path: str, column: str) -> ColumnBounds | None:
        """Return None: the bounds are used by reads only."""
        return None

    def portions(self, columns: Sequence[str] = (), predicate: Predicate | None = None) -> Iterator[Portion]:
        """Yield all files as one portion."""
        yield Portion(self.table, self.statistics.read(self.table, columns) if self.statistics and columns else {})


@dataclass(frozen=True)
class ListedSlices:
    """Live file slices that a listing found. Some of them have log files.

    Memory: one object per file.

    Attributes:
        updating: paths of the log files that, by the write stats of their commits, hold only keys of their base file.
        upserting: paths of the log files that, by the write stats of their commits, delete nothing.
        statistics: the column bounds; None if they are not known.
    """

    slices: tuple[FileSlice, ...]
    updating: frozenset[str] = frozenset()
    upserting: frozenset[str] = frozenset()
    statistics: StoredStatistics | None = None

    @cached_property
    def bases(self) -> ListedFiles:
        """Return only the base files, which a read-optimized query reads."""
        return ListedFiles(tuple(piece.base for piece in self.slices if piece.base is not None))

    @property
    def count(self) -> int:
        """Return the number of file slices."""
        return len(self.slices)

    @property
    def has_logs(self) -> bool:
        """Return True: some slices have log files."""
        return True

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all slices."""
        return sum(piece.size_bytes for piece in self.slices)

    def partitions(self) -> Sequence[str]:
        """Return the partition paths that have files, sorted."""
        return tuple(dict.fromkeys(piece.group.partition_path for piece in self.slices))

    def of_partition(self, partition_path: str) -> tuple[BaseFile, ...]:
        """Return the base files of one partition, sorted by file id."""
        return self.bases.of_partition(partition_path)

    def bounds_in(self, partition_path: str, column: str) -> ColumnBounds | None:
        """Return None: a listing gives no bounds."""
        return None

    def portions(self, columns: Sequence[str] = (), predicate: Predicate | None = None) -> Iterator[Portion]:
        """Yield all slices as one portion."""
        plain = [piece.base if not piece.logs else None for piece in self.slices]
        paths = [piece.group.partition_path for piece in self.slices]
        files = _columns(paths, plain, [piece.size_bytes for piece in self.slices])
        bounds = self.statistics.read_slices(self.slices, columns) if self.statistics and columns else {}
        yield Portion(files, bounds, [piece if piece.logs else None for piece in self.slices])


def select_slices(live: LiveFiles, path_pattern: re.Pattern[str], location: str) -> LiveFiles:
    """Return the file slices whose base file, or last log file if there is none, has a path that matches as a whole.

    Args:
        location: location of the table, with which the paths begin.
    """

    def matches(file: BaseFile | LogFile) -> bool:
        return path_pattern.fullmatch(f"{location}/{file.path}") is not None

    if isinstance(live, ListedSlices):
        return replace(live, slices=tuple(piece for piece in live.slices if matches(piece.base or piece.logs[-1])))
    files = (file for portion in live.portions() for file in file_objects(portion.files))
    return ListedFiles(tuple(filter(matches, files)))


class FilesByPartition(Mapping[str, tuple[BaseFile, ...]]):
    """A mapping of partition path to its live base files. A look-up creates the file objects of one partition."""

    def __init__(self, live: LiveFiles) -> None:
        self._live = live

    def __getitem__(self, partition_path: str) -> tuple[BaseFile, ...]:
        files = self._live.of_partition(partition_path)
        if not files:
            raise KeyError(partition_path)
        return files

    def __iter__(self) -> Iterator[str]:
        return iter(self._live.partitions())

    def __len__(self) -> int:
        return len(self._live.partitions())


class SlicesByPartition(Mapping[str, tuple[FileSlice, ...]]):
    """A mapping of partition path to its live file slices, sorted by file id.

    If the slices come from the file index, a look-up creates the objects of one partition.
    """

    def __init__(self, live: LiveFiles) -> None:
        self._live = live
        self._grouped: dict[str, list[FileSlice]] = {}
        for piece in live.slices if isinstance(live, ListedSlices) else ():
            self._grouped.setdefault(piece.group.partition_path, []).append(piece)

    def __getitem__(self, partition_path: str) -> tuple[FileSlice, ...]:
        if isinstance(self._live, ListedSlices):
            return tuple(self._grouped[partition_path])
        files = self._live.of_partition(partition_path)
        if not files:
            raise KeyError(partition_path)
        return tuple(FileSlice(file.group, file.name.instant_time, file) for file in files)

    def __iter__(self) -> Iterator[str]:
        return iter(self._live.partitions())

    def __len__(self) -> int:
        return len(self._live.partitions())
