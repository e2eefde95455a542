"""Putting instants into the archive, of both layouts (Hudi: ``TimelineArchiverV1``, ``LSMTimelineWriter``).

What is written here stands, whole and durable, before anything leaves the active timeline. A file that a crash left
without being named by a manifest is written over. Readers meet the old manifest or the new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.archive_entries import HISTORY, LeavingInstant, encode_archive, history_rows
from lakeformat.codec.commit_json import decode_json
from lakeformat.storage.port import Storage, check_path
from lakeformat.timeline.archived import LOG_NAME, open_history
from lakeformat.timeline.manifest import MANIFEST_NAME, VERSION_NAME, read_manifest

__all__ = ["HistorySettings", "compact_history", "merge_archive_logs", "write_archive_log", "write_history"]

_DATA: Final = re.compile(r"(?P<least>\d+)_(?P<greatest>\d+)_(?P<level>\d+)\.parquet")
#: Files of layout 1's archive below this are put together once there are so many.
_SMALL_BYTES: Final = 4 << 20
_SMALL_FILES: Final = 10
#: Decoded at once when files are put together.
_BATCH_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How files of layout 2's history are put together.

    Attributes:
        batch: files of one level that become one of the next.
        most_bytes: of the files that become one.
        kept: manifests besides the newest that stay for readers.
    """

    batch: int
    most_bytes: int
    kept: int


# --- layout 1 -------------------------------------------------------------------------------------------


def write_archive_log(storage: Storage, folder: str, instants: Sequence[LeavingInstant], *, per_block: int) -> None:
    """One more file, whose number is greater than all there are; its instants, oldest first, in blocks of some."""
    data = encode_archive(instants, per_block=per_block)
    found = (match for entry in storage.list(folder) if (match := LOG_NAME.fullmatch(entry.name)))
    number = 1 + max((int(match[1]) for match in found), default=0)
    while True:
        try:
            storage.create(check_path(f"{folder}/.commits_.archive.{number}_1-0-1"), data)
        except FileExistsError:  # Where no lock keeps others out.
            number += 1
        else:
            return


def merge_archive_logs(storage: Storage, folder: str) -> bool:
    """Put small files together where there are many; blocks need not be decoded. Returns whether there were.

    A crash leaves instants in two files, and readers take each once (Hudi 0.15: ``hoodie.archive.merge.enable``).
    """
    listed = [(int(m[1]), entry) for entry in storage.list(folder) if (m := LOG_NAME.fullmatch(entry.name))]
    listed.sort(key=lambda each: each[0])
    small = [entry for _, entry in listed if entry.size_bytes < _SMALL_BYTES]
    if len(small) < _SMALL_FILES:
        return False
    data = b"".join(storage.read(entry.path) for entry in small)
    storage.create(check_path(f"{folder}/.commits_.archive.{listed[-1][0] + 1}_1-0-1"), data)
    for entry in small:
        storage.delete(entry.path)
    return True


# --- layout 2 -------------------------------------------------------------------------------------------


def write_history(storage: Storage, folder: str, instants: Sequence[LeavingInstant]) -> None:
    """Write one more file of level 0, and a manifest that names it.

    A file that a manifest names is never written again: what a run that died has archived already is left out.
    """
    number, files = _manifest(storage, folder)
    named = {str(file["fileName"]) for file in files}
    leaving = sorted(instants, key=lambda each: each.time)
    while leaving and (name := f"{leaving[0].time}_{leaving[-1].time}_0.parquet") in named:
        with open_history(storage, f"{folder}/{name}") as file:
            archived = set(file.read(columns=["instantTime"])["instantTime"].to_pylist())
        named.discard(name)
        leaving = [each for each in leaving if each.time not in archived]
    if leaving:
        _publish(storage, folder, number + 1, [*files, _write_data(storage, folder, name, [history_rows(leaving)])])


def compact_history(storage: Storage, folder: str, settings: HistorySettings) -> int:
    """Put files of a level together where there are many, then remove what no kept manifest names.

    Memory: some rows. Returns how many levels were put together.
    """
    level = compacted = 0
    while True:
        number, files = _manifest(storage, folder)
        named = {str(file["fileName"]): file for file in files}
        of_level = sorted(name for name in named if (m := _DATA.fullmatch(name)) and int(m["level"]) == level)
        if not of_level:
            break
        total, sources = 0, list[str]()
        for name in of_level[: settings.batch] if len(of_level) >= settings.batch else []:
            total += int(named[name]["fileLen"])
            if sources and total > settings.most_bytes:
                break
            sources.append(name)
        if len(sources) > 1:
            made = _merged(storage, folder, sources, level + 1)
            rest = [file for name, file in named.items() if name not in sources]
            _publish(storage, folder, number + 1, [*rest, made])
            compacted += 1
        level += 1
    if compacted:
        _forget(storage, folder, settings.kept + compacted)
    return compacted


def _merged(storage: Storage, folder: str, sources: Sequence[str], level: int) -> dict[str, Any]:
    """One file of several, by time. Those of a level hold one range of time after the other, or nearly so."""
    tables = []
    for name in sources:
        with open_history(storage, f"{folder}/{name}") as file:
            tables.append(file.read(columns=HISTORY.names).select(HISTORY.names).cast(HISTORY))
    rows = pa.concat_tables(tables).sort_by([("instantTime", "ascending"), ("action", "ascending")])
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


def _manifest(storage: Storage, folder: str) -> tuple[int, list[Mapping[str, Any]]]:
    """Read the newest manifest: its number, 0 before the first one, and the files that it names."""
    manifest = read_manifest(storage, folder)
    return max(manifest.number, 0), list(manifest.files)


def _publish(storage: Storage, folder: str, number: int, files: Sequence[Mapping[str, Any]]) -> None:
    storage.replace(f"{folder}/manifest_{number}", json.dumps({"files": [dict(file) for file in files]}).encode())
    storage.replace(f"{folder}/{VERSION_NAME}", str(number).encode())


def _forget(storage: Storage, folder: str, kept: int) -> None:
    """Manifests but for the newest few, then data files that none of those names."""
    entries = storage.list(folder)
    numbers = sorted((int(m[1]) for entry in entries if (m := MANIFEST_NAME.fullmatch(entry.name))), reverse=True)
    for number in numbers[kept + 1 :]:
        storage.delete(f"{folder}/manifest_{number}")
    used: set[str] = set()
    for number in numbers[: kept + 1]:
        path = f"{folder}/manifest_{number}"
        used.update(str(file["fileName"]) for file in decode_json(storage.read(path), name=path)["files"])
    for entry in entries:
        if _DATA.fullmatch(entry.name) and entry.name not in used:
            storage.delete(entry.path)
