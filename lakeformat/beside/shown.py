"""What another format may show of a snapshot: its base files, if these alone have the table's rows and columns.

A face shows the rows of one instant or stays as it is: it never shows a row that the table does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from lakeformat.arrow.logical_types import is_vector
from lakeformat.beside.face import Footers, explain_difference
from lakeformat.concurrency import run_all
from lakeformat.errors import UnsupportedTableError
from lakeformat.file_system_view.folder_values import dropped_column_values
from lakeformat.file_system_view.live_files import Portion, file_objects
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import open_base, open_parquet
from lakeformat.files.skeletons import is_skeleton
from lakeformat.model.files import BaseFile
from lakeformat.model.instant import Action, State
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["UncompactedError", "check_shown", "find_first_whole", "read_footers", "values_of_folders"]

_Value = TypeVar("_Value")
_READERS: Final = 8
_CURE: Final = "cluster(by=...) writes all files again"


class UncompactedError(UnsupportedTableError):
    """Log files have changes that only a compaction brings into base files."""


def check_shown(snapshot: Snapshot, location: str) -> None:
    """Refuse a snapshot whose base files alone do not have its rows, or have its columns under other names.

    Raises:
        UncompactedError: it has log files.
        UnsupportedTableError: it has vectors, skeletons, or files from before an alteration of columns.
    """
    if snapshot.live.has_logs:
        slices = sum(bool(piece.logs) for piece in snapshot.each_slice())
        raise UncompactedError(
            f"{location}: {slices} file slices have log files, whose changes other formats cannot show; compact() first"
        )
    vectors = [field.name for field in snapshot.schema or () if is_vector(field.type)]
    if vectors:
        raise UnsupportedTableError(
            f"{location}: other formats would read the VECTOR columns {', '.join(vectors)} as bytes"
        )
    skeletons = sum(is_skeleton(file.path) for file in snapshot.each_file()) if snapshot.config.is_bootstrapped else 0
    if skeletons:
        raise UnsupportedTableError(
            f"{location}: {skeletons} files have their columns in files outside of the table, from a bootstrap; {_CURE}"
        )
    if not snapshot.schemas:
        return
    columns: dict[str, None] = {}
    count = 0
    for file in snapshot.each_file():
        if converted := _converted(snapshot, file):
            columns.update(dict.fromkeys(sorted(converted)))
            count += 1
    if count:
        raise UnsupportedTableError(
            f"{location}: {count} files have the columns {', '.join(columns)} from before an alteration, under another "
            f"name or type; {_CURE}"
        )


def _converted(snapshot: Snapshot, file: BaseFile) -> frozenset[str]:
    shape = snapshot.shape(file)
    if shape is None:
        return frozenset()
    return shape.columns_without_statistics(file.name.instant_time).difference(shape.constants)


def read_footers(
    storage: Storage, portions: Iterable[Portion], schema: pa.Schema, constants: frozenset[str]
) -> Footers:
    """Read the footers of files: how many rows each has, and which columns they hold.

    Args:
        schema: the columns of the table.
        constants: columns whose values files need not hold.

    Raises:
        UnsupportedTableError: readers of other formats would read another value from a file, or none.
        CorruptTableError: a file is missing or damaged.
    """
    types = {field.name: field.type for field in schema if field.name not in constants}

    def read(file: BaseFile) -> tuple[int, pa.Schema]:
        with open_base(storage, file) as source, open_parquet(source, f"{storage.location}/{file.path}") as parquet:
            for field in parquet.schema_arrow:
                if field.name in types and (why := explain_difference(field.type, types[field.name])):
                    raise UnsupportedTableError(
                        f"{storage.location}/{file.path} holds the column {field.name} as {why}, from before a change "
                        f"of its type; {_CURE}"
                    )
            return int(parquet.metadata.num_rows), parquet.schema_arrow.remove_metadata()

    footers = [run_all(read, file_objects(portion.files), threads=_READERS) for portion in portions]
    return Footers(
        [[rows for rows, _ in some] for some in footers], frozenset(stored for some in footers for _, stored in some)
    )


def find_first_whole(store: TimelineStore, timeline: Timeline) -> str:
    """Return the first instant whose files are all there; "" if nothing was cleaned.

    A clean that counts versions of files does not say which instants it keeps: all from the clean on are whole.
    """
    cleans = [clean for clean in timeline.of_action(Action.CLEAN) if clean.state is State.COMPLETED]
    if not cleans:
        return ""
    clean = store.read_clean(cleans[-1])
    return (clean.earliest_commit_to_retain if clean else "") or cleans[-1].time


def values_of_folders(
    snapshot: Snapshot, schema: pa.Schema, portions: Sequence[Portion], convert: Callable[[pa.Scalar], _Value]
) -> Mapping[str, Mapping[str, _Value]]:
    """Return each partition value of each folder, for a table whose files lack the partition columns.

    Args:
        convert: makes the format's form of a value.

    Raises:
        UnsupportedTableError: a folder's path does not give the value of a column.
    """
    if not snapshot.config.drops_partition_columns:
        return {}
    folders = {path for portion in portions for path in portion.files["partition_path"].to_pylist()}
    return {
        path: {name: convert(value) for name, value in dropped_column_values(path, snapshot.config, schema).items()}
        for path in sorted(folders)
    }
