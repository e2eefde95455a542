"""Writing the archive, in both layouts.

Writing: an archive file is complete and durable before any instant is deleted from the active timeline. If a crash left
a file that is in no manifest, the next run overwrites that file. Readers see the old manifest or the new one.

The manifest of layout 2 lists the valid history files (Hudi: ``LSMTimelineWriter.updateManifest``). Each change of the
archive has two steps:

1. Create ``manifest_<n + 1>``. If another process has created it first, begin again from its manifest.
2. Write the number ``n + 1`` into ``_version_``.

So the manifest with the greatest number is the newest one. Between the two steps ``_version_`` contains the number
before it. If ``_version_`` contains a still smaller number, it is damaged and is not used: an older manifest lists
fewer instants, so a query that used it would lose rows. If ``_version_`` contains a greater number, the newest manifest
is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.codec.timeline_files.archive import (
    HISTORY,
    InstantToArchive,
    encode_archive,
    history_rows,
)
from lakeformat.codec.timeline_files.commit import decode_json
from lakeformat.storage.port import Storage, VersionChangedError, check_path
from lakeformat.timeline.archive import (
    LOG_NAME,
    MANIFEST_NAME,
    VERSION_NAME,
    is_number,
    read_history_file,
    read_manifest,
)

__all__ = [
    "HistorySettings",
    "compact_history",
    "merge_archive_logs",
    "write_archive_log",
    "write_history",
]

_DATA: Final = re.compile(r"(?P<least>\d+)_(?P<greatest>\d+)_(?P<level>\d+)\.parquet")
#: An archive file of layout 1 is small if it has fewer bytes than this.
_SMALL_BYTES: Final = 4 << 20
#: If an archive of layout 1 has at least this many small files, they are merged.
_SMALL_FILES: Final = 10
_HOUR_MS: Final = 3_600_000
#: Number of rows per row group when files are merged.
_BATCH_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Settings for merging history files of layout 2.

    Attributes:
        batch: Number of files of one level that are merged into one file of the next level.
        most_bytes: Maximum total size in bytes of the files that are merged into one.
        kept_manifests: Number of manifests before the newest that are not deleted, because readers may use them.
    """

    batch: int
    most_bytes: int
    kept_manifests: int


# --- layout 1 -------------------------------------------------------------------------------------------


def write_archive_log(storage: Storage, folder: str, instants: Sequence[InstantToArchive], *, per_block: int) -> None:
    """Write an archive file of layout 1 with a number greater than all others.

    Args:
        instants: Instants to archive, oldest first.
        per_block: Maximum number of instants in a block.
    """
    data = encode_archive(instants, per_block=per_block)
    matches = (match for entry in storage.list(folder) if (match := LOG_NAME.fullmatch(entry.name)))
    number = 1 + max((int(match[1]) for match in matches), default=0)
    while True:
        try:
            storage.create(check_path(f"{folder}/.commits_.archive.{number}_1-0-1"), data)
        except FileExistsError:  # Another writer used this number: only on storage without locks.
            number += 1
        else:
            return


def merge_archive_logs(storage: Storage, folder: str) -> bool:
    """Merge the small archive files of layout 1 if at least `_SMALL_FILES` exist. Return whether files were merged.

    Hudi 0.15: ``hoodie.archive.merge.enable``. Blocks are copied without decoding. A crash before the small files are
    deleted leaves their instants in two files; readers count each instant once.
    """
    listed = [(int(m[1]), entry) for entry in storage.list(folder) if (m := LOG_NAME.fullmatch(entry.name))]
    listed.sort(key=lambda pair: pair[0])
    small = [entry for _, entry in listed if entry.size_bytes < _SMALL_BYTES]
    if len(small) < _SMALL_FILES:
        return False
    try:
        data = b"".join(storage.read(entry.path) for entry in small)
        storage.create(check_path(f"{folder}/.commits_.archive.{listed[-1][0] + 1}_1-0-1"), data)
    except (FileNotFoundError, FileExistsError):  # Another process merges the files, or has written another.
        return False
    for entry in small:
        storage.delete(entry.path)
    return True


# --- layout 2 -------------------------------------------------------------------------------------------


def write_history(storage: Storage, folder: str, instants: Sequence[InstantToArchive]) -> None:
    """Write a history file of level 0, and a manifest that contains it.

    The file's name contains its first and last instant time. If the newest manifest has a file of this name already, an
    earlier run has archived some of the instants and died. That file is not overwritten, and its instants are not
    written again.
    """
    while not _try_write_history(storage, folder, instants):
        pass


def _try_write_history(storage: Storage, folder: str, instants: Sequence[InstantToArchive]) -> bool:
    """Write the file and the manifest. Return False if another process has published a manifest meanwhile."""
    number, files = _newest_manifest(storage, folder)
    named = {str(file["fileName"]) for file in files}
    leaving = sorted(instants, key=lambda instant: instant.time)
    while leaving and (name := f"{leaving[0].time}_{leaving[-1].time}_0.parquet") in named:
        archived = set(read_history_file(storage, f"{folder}/{name}", ["instantTime"])["instantTime"].to_pylist())
        named.discard(name)
        leaving = [instant for instant in leaving if instant.time not in archived]
    if not leaving:
        return True
    made = _write_data(storage, folder, name, [history_rows(leaving)])
    return _publish(storage, folder, number + 1, [*files, made])


def compact_history(storage: Storage, folder: str, settings: HistorySettings) -> int:
    """Merge history files level by level, then delete unused files if any were merged.

    If a level has at least ``settings.batch`` files, its oldest files are merged into one file of the next level.
    Unused files are old manifests, and the history files that are in no remaining manifest. Memory: the rows of one
    merge.

    Returns:
        Number of merges, at most one per level.
    """
    level = compacted = 0
    while True:
        number, files = _newest_manifest(storage, folder)
        named = {str(file["fileName"]): file for file in files}
        of_level = sorted(name for name in named if (m := _DATA.fullmatch(name)) and int(m["level"]) == level)
        if not of_level:
            break
        total, sources = 0, list[str]()
        for name in of_level[: settings.batch] if len(of_level) >= settings.batch else []:
            total += int(named[name]["fileLen"])
            if total > settings.most_bytes:
                break
            sources.append(name)
        if len(sources) > 1:
            made = _merge(storage, folder, sources, level + 1)
            rest = [file for name, file in named.items() if name not in sources]
            if not _publish(storage, folder, number + 1, [*rest, made]):
                break  # Another process has published a manifest of this number.
            compacted += 1
        level += 1
    if compacted:
        _delete_unused(storage, folder, settings.kept_manifests + compacted)
    return compacted


def _merge(storage: Storage, folder: str, sources: Sequence[str], level: int) -> dict[str, Any]:
    """Merge history files into one file of a level, sorted by time; return its manifest entry.

    An instant is in two files if a process archived it that died, or was taken for dead, before it removed the instant
    from the timeline. The merged file has it once.
    """
    tables = [read_history_file(storage, f"{folder}/{name}", HISTORY.names).cast(HISTORY) for name in sources]
    rows = pa.concat_tables(tables).sort_by([("instantTime", "ascending"), ("action", "ascending")])
    both = (rows.column(name) for name in ("instantTime", "action"))
    is_again = pc.and_(*(pc.equal(column.slice(1), column.slice(0, len(column) - 1)) for column in both))
    rows = rows.filter(pa.chunked_array([[True], *pc.invert(is_again).chunks], pa.bool_()))
    times = rows.column("instantTime")
    return _write_data(storage, folder, f"{times[0]}_{times[-1]}_{level}.parquet", rows.to_batches(_BATCH_ROWS))


def _write_data(storage: Storage, folder: str, name: str, parts: Sequence[pa.Table | pa.RecordBatch]) -> dict[str, Any]:
    path = check_path(f"{folder}/{name}")
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, HISTORY, compression="gzip", store_schema=False) as writer:
        for part in parts:
            writer.write(part)
    data = sink.getvalue().to_pybytes()
    storage.replace(path, data)
    return {"fileName": name, "fileLen": len(data)}


def _newest_manifest(storage: Storage, folder: str) -> tuple[int, list[Mapping[str, Any]]]:
    """Return the number of the newest manifest (0 if there is none), and the manifest's entries."""
    manifest = read_manifest(storage, folder)
    return max(manifest.number, 0), list(manifest.files)


def _publish(storage: Storage, folder: str, number: int, files: Sequence[Mapping[str, Any]]) -> bool:
    """Publish a manifest; replace a damaged one. Return False if another process has published one of this number."""
    path, data = f"{folder}/manifest_{number}", json.dumps({"files": [dict(file) for file in files]}).encode()
    try:
        storage.create(path, data)
    except FileExistsError:
        if read_manifest(storage, folder).number >= number:
            return False
        storage.replace(path, data)
    _raise_version(storage, f"{folder}/{VERSION_NAME}", number)
    return True


def _raise_version(storage: Storage, path: str, number: int) -> None:
    """Write the number of the newest manifest, unless another process has written a greater one."""
    try:
        text, version = (b"", None) if storage.has_lock else storage.read_versioned(path)
    except FileNotFoundError:
        text, version = b"", None
    if version is None:
        storage.replace(path, str(number).encode())
    elif not is_number(text) or int(text) < number:
        with suppress(VersionChangedError):  # Another process is writing it; it may stay one manifest behind.
            storage.replace_if(path, str(number).encode(), version)


def _delete_unused(storage: Storage, folder: str, kept_manifests: int) -> None:
    """Delete old manifests, then the history files that are in no remaining manifest.

    The newest manifest and the ``kept_manifests`` before it remain.
    """
    entries = storage.list(folder)
    numbers = sorted((int(m[1]) for entry in entries if (m := MANIFEST_NAME.fullmatch(entry.name))), reverse=True)
    for number in numbers[kept_manifests + 1 :]:
        storage.delete(f"{folder}/manifest_{number}")
    used: set[str] = set()
    for number in numbers[: kept_manifests + 1]:
        path = f"{folder}/manifest_{number}"
        used.update(str(file["fileName"]) for file in decode_json(storage.read(path), name=path)["files"])
    now = max(entry.modified_ms for entry in entries)
    for entry in entries:
        # On storage without locks another process may have written a young file for its next manifest.
        is_old = storage.has_lock or now - entry.modified_ms > _HOUR_MS
        if is_old and _DATA.fullmatch(entry.name) and entry.name not in used:
            storage.delete(entry.path)
