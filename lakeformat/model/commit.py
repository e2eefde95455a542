"""What a commit did: statistics per file, and the metadata that its completed file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from lakeformat.model.files import BaseFile, BaseFileName

__all__ = ["FILES_SCHEMA", "CommitMetadata", "LogsMerged", "WriteStat"]

#: Key of ``extraMetadata``: the columns that the files have, where they are not those of the table.
FILES_SCHEMA: Final = "lakeformat.files.schema"


@dataclass(frozen=True, slots=True)
class LogsMerged:
    """What a compaction has merged into a base file; of other programs' files nobody asks.

    Attributes:
        records: of the log files, one version of each.
    """

    files: int
    size_bytes: int
    blocks: int
    records: int


@dataclass(frozen=True, slots=True)
class WriteStat:
    """One written file (Hudi: ``HoodieWriteStat``, ``HoodieDeltaWriteStat``); counts in rows, sizes in bytes.

    Attributes:
        path: of a base file or a log file, relative to the table; "" in a profile, where none is written yet.
        prev_commit: instant of the base file before; of a log file, of its slice; None for a new file group.
        base_name: of a log file's slice, the base file's bare name; of a base file, that of the one before, where
            commits tell (timeline layout 2); "" if it has none, or nobody said.
        log_names: bare names of the slice's log files when this one was written.
        cdc_stats: path and size of each change data file.
        merged: by a compaction of ours.
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

    @property
    def is_base(self) -> bool:
        """Whether the file is a base file, not a log file."""
        return BaseFileName.match(self.path.rpartition("/")[2]) is not None

    @property
    def base_file(self) -> BaseFile:
        """The file itself; raises `CorruptTableError` if its name is none of a base file."""
        return BaseFile(self.partition_path, BaseFileName.parse(self.path.rpartition("/")[2]), self.size_bytes)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Contents of a completed commit or replacecommit (Hudi: ``HoodieCommitMetadata``).

    Attributes:
        operation: Hudi's operation type in capitals, ``UPSERT`` for one.
        stats: partition path -> what was written there.
        extra: the ``extraMetadata`` map; ``schema`` holds the table schema as Avro text.
        replaced: partition path -> file ids this commit hides (replacecommit only).
        compacted: the commit is a compaction: its rows are not new.
    """

    operation: str
    stats: Mapping[str, tuple[WriteStat, ...]]
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compacted: bool = False

    def all_stats(self) -> Iterator[WriteStat]:
        """Every file version written, partition by partition."""
        for stats in self.stats.values():
            yield from stats

    @property
    def schema_text(self) -> str:
        """The table schema as Avro text, ``""`` where the commit carries none."""
        return self.extra.get("schema", "")

    @property
    def files_schema_text(self) -> str:
        """The schema that the commit's files were written with; another one only if it changed meanwhile."""
        return self.extra.get(FILES_SCHEMA, self.schema_text)
