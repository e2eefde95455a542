"""The rollback of log files that an instant has appended to.

The rollback of a log file depends on the timeline layout and on the instant in its name:

- Layout 1, another instant: the dead writer appended to the log file of a slice that readers use, so the log file
  stays. A command block that cancels the dead writer's blocks is written to a new log file with the next version
  (Hudi: ``RollbackHelperV1``).
- Layout 1, the dead instant: the log file belongs to a slice that no reader uses, so it is deleted.
- Layout 2: each name contains the instant that wrote the log file, so the dead writer's log files are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from lakeformat.codec.log_blocks import BlockKind, HeaderKey
from lakeformat.codec.timeline_files.recovery import RollbackPartition, RollbackRequest
from lakeformat.errors import CorruptTableError, StorageError, UnsupportedTableError
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.files.log_reader import read_blocks
from lakeformat.files.log_writer import encode_rollback_block
from lakeformat.model.files import LogFile, LogFileName, join_path
from lakeformat.storage.port import Storage
from lakeformat.transaction.undo.markers import MarkerKind

__all__ = ["cancel_blocks", "list_own_logs", "log_rollback_requests", "logs_that_stay"]

#: Maximum number of attempts to create a command block's log file while other writers use the next log versions.
_TRIES: Final = 16
_WRITE_TOKEN: Final = "1-0-1"


def log_rollback_requests(
    storage: Storage, instant_time: str, marked: Iterable[tuple[str, MarkerKind]] | None
) -> tuple[RollbackRequest, ...]:
    """Return a rollback request for each log file that an instant appended to and whose name has another instant.

    Args:
        marked: the files that have a marker, if the writer created one before each file, as lakeformat's writers do;
            then the markers name the log files. If None, the block headers of the log files are read.
    """
    logs = _find_logs_by_headers(storage, instant_time) if marked is None else _find_logs_by_markers(storage, marked)
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


def _find_logs_by_markers(storage: Storage, marked: Iterable[tuple[str, MarkerKind]]) -> Iterable[LogFile]:
    for path, kind in marked:
        if kind is not MarkerKind.APPEND:
            continue
        partition, _, name = path.rpartition("/")
        parsed, info = LogFileName.match(name), storage.info(path)
        if parsed is not None and info is not None:
            yield LogFile(partition, parsed, info.size_bytes)


def _find_logs_by_headers(storage: Storage, instant_time: str) -> Iterable[LogFile]:
    for log in list_files(storage).logs:
        if log.name.instant_time <= instant_time and _has_blocks_of(storage, log, instant_time):
            yield log


def list_own_logs(storage: Storage, logs: Iterable[LogFile], instant_time: str) -> tuple[LogFile, ...]:
    """Return the log files whose blocks an instant wrote, by their headers: layout 1 does not show it by their names.

    Raises:
        UnsupportedTableError: another instant has written blocks to one of them.
    """
    own = []
    for log in logs:
        if log.name.instant_time <= instant_time and _has_blocks_of(storage, log, instant_time):
            if any(block.instant_time != instant_time for block in read_blocks(storage, log)):
                raise UnsupportedTableError(
                    f"commit {instant_time} has appended to {log.path}, which holds rows of other commits; use Apache "
                    "Hudi to go back"
                )
            own.append(log)
    return tuple(own)


def _has_blocks_of(storage: Storage, log: LogFile, instant_time: str) -> bool:
    with suppress(CorruptTableError):  # Readers skip unreadable blocks, so they need no rollback.
        return any(block.instant_time == instant_time for block in read_blocks(storage, log))
    return False


def cancel_blocks(storage: Storage, request: RollbackRequest, victim: str, rollback_time: str) -> RollbackPartition:
    """Cancel the victim's blocks: write a command block to a new log file behind each log file of a request.

    Log files that do not exist are skipped. A command block that an earlier run has written counts as this run's.

    Args:
        victim: the instant time that is undone.
        rollback_time: the instant time of the rollback.
    """
    logs: dict[str, int] = {}
    failed: dict[str, int] = {}
    for path, size in _sizes_by_name(request).items():
        name = LogFileName.match(path)
        if name is not None and storage.info(join_path(request.partition_path, path)) is not None:
            failed[path] = size
            logs.update(_put_command_block(storage, request.partition_path, name, victim, rollback_time))
    return RollbackPartition(request.partition_path, rollback_log_files=logs, log_files_of_failed_commit=failed)


def logs_that_stay(part: RollbackPartition) -> Iterator[tuple[str, str, int]]:
    """Yield partition path, name and size of the log files of the undone commit, and of those that cancel them."""
    for name, size in {**part.log_files_of_failed_commit, **part.rollback_log_files}.items():
        yield part.partition_path, name, size


def _sizes_by_name(request: RollbackRequest) -> Mapping[str, int]:
    """Return a mapping of bare file name to size in bytes for the log files that a rollback request names.

    The folders in the request's paths are ignored: the plan may come from another machine and is not trusted.
    """
    return {path.rpartition("/")[2]: size for path, size in request.log_blocks_to_delete.items()}


def _put_command_block(
    storage: Storage, partition_path: str, name: LogFileName, victim: str, rollback_time: str
) -> Mapping[str, int]:
    block = encode_rollback_block(instant_time=rollback_time, target=victim)
    for _ in range(_TRIES):
        of_slice = _list_logs_of_slice(storage, partition_path, name)
        behind = [log for log in of_slice if log.name.order > name.order]
        there = next((log for log in behind if _has_command_block(storage, log, victim)), None)
        if there is not None:
            return {str(there.name): there.size_bytes}
        version = max((log.name.version for log in of_slice), default=name.version) + 1
        ours = LogFileName(name.file_id, name.instant_time, version, _WRITE_TOKEN)
        with suppress(FileExistsError):
            storage.create(join_path(partition_path, str(ours)), block)
            return {str(ours): len(block)}
    raise StorageError(f"{storage.location}/{partition_path}: other writers take every log file's name; run again")


def _list_logs_of_slice(storage: Storage, partition_path: str, name: LogFileName) -> list[LogFile]:
    logs = []
    for entry in storage.list(partition_path):
        log = LogFileName.match(entry.name)
        if log is not None and (log.file_id, log.instant_time) == (name.file_id, name.instant_time):
            logs.append(LogFile(partition_path, log, entry.size_bytes))
    return logs


def _has_command_block(storage: Storage, log: LogFile, victim: str) -> bool:
    with suppress(CorruptTableError):
        blocks = read_blocks(storage, log)
        return any(
            block.kind is BlockKind.COMMAND and block.header.get(HeaderKey.TARGET_INSTANT_TIME) == victim
            for block in blocks
        )
    return False
