"""The metadata that the completed file of a commit stores, with a write stat for each written file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, LogFile, LogFileName

__all__ = ["FILES_SCHEMA", "CommitMetadata", "LogsMerged", "WriteStat"]

#: Key of ``extraMetadata`` for the schema of the commit's files. Stored only if it differs from the table's schema.
FILES_SCHEMA: Final = "lakeformat.files.schema"


@dataclass(frozen=True, slots=True)
class LogsMerged:
    """Totals of the log files that a compaction by lakeformat merged into one base file.

    Attributes:
        files: Number of log files.
        size_bytes: Size of all log files together, in bytes.
        blocks: Number of log blocks.
        records: Number of distinct record keys in the log files.
    """

    files: int
    size_bytes: int
    blocks: int
    records: int


@dataclass(frozen=True, slots=True)
class WriteStat:
    """The write stat of one base file or log file (Hudi: ``HoodieWriteStat``, ``HoodieDeltaWriteStat``).

    Counts are in rows, sizes in bytes.

    Attributes:
        path: Path of the base file or log file, relative to the table; "" in an inflight profile, which describes
            files that are not written yet.
        prev_commit: For a base file, the instant time of the file group's previous base file. For a log file, the base
            instant of its slice. None for a new file group.
        base_name: For a log file, the bare name of its slice's base file. For a base file, the bare name of the
            previous base file, which only commits of timeline layout 2 store. "" if there is none or it is not stored.
        log_names: For a log file, bare names of the log files that its file slice had at the time of the write,
            including this log file.
        cdc_stats: Path and size in bytes of each change data file.
        write_errors: Number of input rows that could not be written. One file of a commit has those of the whole write,
            because a row that cannot be read belongs to no file.
        merged: Totals of the log files that a compaction by lakeformat merged into the file; None for other files.
    """

    file_id: str
    path: str
    partition_path: str
    prev_commit: str | None
    num_writes: int
    num_deletes: int = 0
    num_updates: int = 0
    num_inserts: int = 0
    size_bytes: int = 0
    base_name: str = ""
    log_names: tuple[str, ...] = ()
    cdc_stats: tuple[tuple[str, int], ...] = ()
    merged: LogsMerged | None = None
    write_errors: int = 0

    @property
    def base_instant(self) -> str | None:
        """Return the instant whose file it has rewritten, or to whose slice it was appended; None if there is none."""
        log = None if self.prev_commit else LogFileName.match(self.path.rpartition("/")[2])
        return self.prev_commit or (log.instant_time if log is not None else None)

    @property
    def group(self) -> FileGroupId:
        """Return the file group of the file."""
        return FileGroupId(self.partition_path, self.file_id)

    @property
    def is_base(self) -> bool:
        """Tell whether the file is a base file, not a log file."""
        return BaseFileName.match(self.path.rpartition("/")[2]) is not None

    @property
    def base_file(self) -> BaseFile:
        """Return the base file. Raise `CorruptTableError` if the name is not the name of a base file."""
        return BaseFile(self.partition_path, BaseFileName.parse(self.path.rpartition("/")[2]), self.size_bytes)

    @property
    def log_file(self) -> LogFile | None:
        """Return the log file; None if the name is not the name of one."""
        name = LogFileName.match(self.path.rpartition("/")[2])
        return None if name is None else LogFile(self.partition_path, name, self.size_bytes)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Contents of a completed commit or replacecommit (Hudi: ``HoodieCommitMetadata``).

    Attributes:
        operation: Hudi's operation type in capitals, such as ``UPSERT``.
        stats: Maps each partition path to the write stats of the files that the commit wrote in the partition.
        extra: The ``extraMetadata`` map. Its key ``schema`` has the table schema as Avro text.
        replaced: Maps each partition path to the ids of the file groups that the commit replaces (replacecommit only).
        compacted: Whether the commit is a compaction. Then its rows are not new: earlier deltacommits wrote them.
    """

    operation: str
    stats: Mapping[str, tuple[WriteStat, ...]]
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compacted: bool = False

    def all_stats(self) -> Iterator[WriteStat]:
        """Yield the write stats of all written files, partition by partition."""
        for stats in self.stats.values():
            yield from stats

    @property
    def replaced_groups(self) -> Iterator[FileGroupId]:
        """Yield the file groups that the commit replaces."""
        for path, ids in self.replaced.items():
            yield from (FileGroupId(path, file_id) for file_id in ids)

    @property
    def schema_text(self) -> str:
        """Return the table schema as Avro text; ``""`` if the commit does not store it."""
        return self.extra.get("schema", "")

    @property
    def files_schema_text(self) -> str:
        """Return the schema of the commit's files, which is the table schema unless the commit stores another one."""
        return self.extra.get(FILES_SCHEMA, self.schema_text)
