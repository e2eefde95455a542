"""Undo what a dead writer appended to log files in timeline layout 1 (Hudi: ``RollbackHelperV1``).

A command block is put behind the dead writer's blocks. The log files themselves stay, because readers may be reading
them. A file whose name holds the dead instant opened a slice that no reader uses; it is deleted. In layout 2 the name
of every log file holds the instant that wrote it, so the files are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from lakeformat.codec.avro_records import RollbackPartition, RollbackRequest
from lakeformat.codec.log_block import BlockKind, HeaderKey
from lakeformat.errors import CorruptTableError, StorageError
from lakeformat.files.log_reader import read_blocks
from lakeformat.files.log_writer import rollback_block
from lakeformat.model.files import LogFile, LogFileName, join_path
from lakeformat.storage.port import Storage
from lakeformat.table_state.file_groups import list_files
from lakeformat.transaction.markers import announced_logs

__all__ = ["append_requests", "cancel_blocks"]

#: Attempts to get a free version number for a command block's file while other writers take numbers.
_TRIES: Final = 16
_WRITE_TOKEN: Final = "1-0-1"


def append_requests(storage: Storage, instant_time: str, *, by_markers: bool) -> tuple[RollbackRequest, ...]:
    """Return a rollback request for each log file of an older slice that holds blocks of an instant.

    Args:
        by_markers: True if the writer put a marker before it made each file, as our writers do. If False, the block
            headers of all log files are read.
    """
    logs = _logs_by_markers(storage, instant_time) if by_markers else _logs_by_headers(storage, instant_time)
    return tuple(
        RollbackRequest(
            log.partition_path,
            log.name.file_id,
            log.name.instant_time,
            log_blocks_to_delete={f"{storage.location}/{log.path}": log.size_bytes},
        )
        for log in logs
        if log.name.instant_time != instant_time
    )


def _logs_by_markers(storage: Storage, instant_time: str) -> Iterable[LogFile]:
    for path in announced_logs(storage, instant_time):
        partition, _, name = path.rpartition("/")
        parsed, info = LogFileName.match(name), storage.info(path)
        if parsed is not None and info is not None:
            yield LogFile(partition, parsed, info.size_bytes)


def _logs_by_headers(storage: Storage, instant_time: str) -> Iterable[LogFile]:
    for log in list_files(storage).logs:
        if log.name.instant_time <= instant_time and _has_blocks_of(storage, log, instant_time):
            yield log


def _has_blocks_of(storage: Storage, log: LogFile, instant_time: str) -> bool:
    with suppress(CorruptTableError):  # A reader takes no rows from blocks that cannot be read.
        return any(block.instant_time == instant_time for block in read_blocks(storage, log))
    return False


def cancel_blocks(storage: Storage, request: RollbackRequest, victim: str, rollback_time: str) -> RollbackPartition:
    """Put a command block behind each existing log file of a request. Running it again changes nothing.

    Args:
        victim: the instant that is undone.
        rollback_time: the instant of the rollback.
    """
    logs: dict[str, int] = {}
    failed: dict[str, int] = {}
    for path, size in _sizes_by_name(request).items():
        name = LogFileName.match(path)
        if name is not None and storage.info(join_path(request.partition_path, path)) is not None:
            failed[path] = size
            logs.update(_cancel(storage, request.partition_path, name, victim, rollback_time))
    return RollbackPartition(request.partition_path, rollback_log_files=logs, log_files_of_failed_commit=failed)


def _sizes_by_name(request: RollbackRequest) -> Mapping[str, int]:
    """Return the sizes by bare file name. The paths in a plan come from another machine and are not trusted."""
    return {path.rpartition("/")[2]: size for path, size in request.log_blocks_to_delete.items()}


def _cancel(
    storage: Storage, partition_path: str, name: LogFileName, victim: str, rollback_time: str
) -> Mapping[str, int]:
    block = rollback_block(instant_time=rollback_time, target=victim)
    for _ in range(_TRIES):
        of_slice = _logs_of_slice(storage, partition_path, name)
        behind = [log for log in of_slice if log.name.order > name.order]
        if any(_cancels(storage, log, victim) for log in behind):
            return {}
        version = max((log.name.version for log in of_slice), default=name.version) + 1
        ours = LogFileName(name.file_id, name.instant_time, version, _WRITE_TOKEN)
        with suppress(FileExistsError):
            storage.create(join_path(partition_path, str(ours)), block)
            return {str(ours): len(block)}
    raise StorageError(f"{storage.location}/{partition_path}: other writers take every log file's name; run again")


def _logs_of_slice(storage: Storage, partition_path: str, name: LogFileName) -> list[LogFile]:
    found = []
    for entry in storage.list(partition_path):
        log = LogFileName.match(entry.name)
        if log is not None and (log.file_id, log.instant_time) == (name.file_id, name.instant_time):
            found.append(LogFile(partition_path, log, entry.size_bytes))
    return found


def _cancels(storage: Storage, log: LogFile, victim: str) -> bool:
    with suppress(CorruptTableError):
        blocks = read_blocks(storage, log)
        return any(
            block.kind is BlockKind.COMMAND and block.header.get(HeaderKey.TARGET_INSTANT_TIME) == victim
            for block in blocks
        )
    return False
