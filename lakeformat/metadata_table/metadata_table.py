"""A table's metadata table: what it says about files, statistics, bloom filters, and the places of keys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import properties
from lakeformat.codec.bloom import BloomFilter
from lakeformat.codec.hfile import HFile
from lakeformat.codec.log_blocks import BlockKind, HeaderKey, LogBlock
from lakeformat.concurrency import run_all
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.files.block_content import decode_deletes
from lakeformat.files.block_order import blocks_to_merge
from lakeformat.files.log_reader import read_blocks, read_contents
from lakeformat.metadata_table.file_groups import MetadataSlice, is_last_group_named, list_slices
from lakeformat.metadata_table.instants import MetadataInstants
from lakeformat.metadata_table.merge import Batch, merge_files, merge_newest, merge_statistics
from lakeformat.metadata_table.names import (
    ALL_PARTITIONS,
    FOLDER,
    MetadataPartition,
    RecordKind,
    bloom_key,
    file_groups_of,
    partition_of_name,
    statistics_prefix,
    stored_partition,
    table_partition,
)
from lakeformat.metadata_table.parts import decode_parts, no_rows
from lakeformat.metadata_table.secondary_keys import prefixes_of_values
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.model.table_version import TABLE_VERSIONS
from lakeformat.storage.port import Storage
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import TimelineLayout, layout_of

__all__ = ["PROPERTIES", "KeyPlaces", "MetadataTable", "open_metadata_table"]

#: Path of the properties of the metadata table, relative to the table.
PROPERTIES: Final = f"{FOLDER}/.hoodie/hoodie.properties"
_PLACE: Final = ["key", "partition_path", "file_id", "instant_ms"]
_DONE: Final = State.COMPLETED
#: Actions whose instants name the file groups that they have written.
_WRITES: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT})


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """The metadata table of one table, at one moment.

    Every method reads what it needs and keeps nothing. The methods raise `CorruptTableError` if a file is damaged or a
    file group is missing, and `UnsupportedTableError` if the index is of a kind that is not supported.

    Attributes:
        config: The metadata table's own properties.
        names: Names of all partitions in the table's properties, those that cannot be read here included.
        instants: The metadata table's instants.
    """

    storage: Storage
    config: TableConfig
    names: tuple[str, ...]
    instants: MetadataInstants

    @property
    def layout(self) -> TimelineLayout:
        """Return the layout of the metadata table's timeline."""
        layout = layout_of(self.config)
        if layout is None:
            raise UnsupportedTableError(
                f"the metadata table of {self.storage.location} has timeline layout {self.config.layout_version}, "
                "which is not supported; run repair(), which drops it"
            )
        return layout

    def list_timeline(self) -> list[str]:
        """Return the names of the files in the timeline's folder now."""
        return _list_timeline(self.storage, self.config)

    def path(self, instant: Instant) -> str:
        """Return the path of an instant's file, relative to the table."""
        return f"{FOLDER}/{self.layout.path(instant)}"

    def without(self, names: Collection[str]) -> MetadataTable:
        """Return the metadata table as it is without some partitions."""
        return replace(self, names=tuple(name for name in self.names if name not in names))

    @property
    def partitions(self) -> tuple[MetadataPartition, ...]:
        """Return the partitions that the table's properties name, without those of kinds that are not known here."""
        parsed = map(partition_of_name, self.names)
        return tuple(partition for partition in parsed if partition is not None)

    def has(self, partition: MetadataPartition) -> bool:
        """Tell whether the table's properties name this partition. One that they do not name must not be read."""
        return partition.value in self.names

    def check_file_groups(self) -> None:
        """List the file groups of all partitions that can be read here. Raise the errors of a read if one is missing.

        Partitions of kinds that are not supported are left out.
        """
        for partition in self.partitions:
            with suppress(UnsupportedTableError):
                self.list_slices(partition)
                if partition.has_places:
                    self.check_key_groups(partition)

    def check_key_groups(self, partition: MetadataPartition) -> None:
        """Raise `CorruptTableError` if an index of keys does not have as many file groups as it was made with.

        The instants since a partition was made last tell it. If none of them names the last group, keys of all groups
        must have the hash of their group.
        """
        self._check_key_groups(partition, self.list_slices(partition))

    def _check_key_groups(self, partition: MetadataPartition, slices: Sequence[MetadataSlice]) -> None:
        instants = self.instants
        made = max((instants.completions[time] for time in instants.filled), default="")
        done = [
            instant for name in self.list_timeline() if (instant := self.layout.parse(name)) and instant.state is _DONE
        ]
        told = [
            done_instant
            for done_instant in done
            if done_instant.action in _WRITES and instants.completions.get(done_instant.time, "") >= made
        ]
        newest_first = sorted(
            told, key=lambda done_instant: (done_instant.action is Action.COMMIT, done_instant.time), reverse=True
        )
        if not is_last_group_named(self.storage, partition, len(slices), map(self.path, newest_first)):
            for piece in slices:
                for _ in self._read_group(partition, piece, _FIRST, len(slices)):
                    pass

    def list_partitions(self) -> tuple[str, ...]:
        """Return the partition paths of the table, sorted."""
        rows = self._read(MetadataPartition.FILES, _Keys(pa.array([ALL_PARTITIONS])), merge_files)
        return tuple(sorted(table_partition(name) for name in rows["file_name"].to_pylist()))

    def files(self, partitions: Sequence[str] | None = None) -> pa.Table:
        """Return the files that exist in the partitions: ``partition_path``, ``file_name``, ``size_bytes``.

        They are base files and log files, in no order. Files that were replaced and are not cleaned yet are among them.

        Args:
            partitions: Partition paths; None for all.
        """
        keys = None if partitions is None else _Keys(pa.array(map(stored_partition, partitions), pa.string()))
        rows = self._read(MetadataPartition.FILES, keys, merge_files)
        rows = rows.filter(pc.not_equal(rows["key"], ALL_PARTITIONS))
        paths = pc.if_else(pc.equal(rows["key"], stored_partition("")), "", rows["key"])
        return pa.table({"partition_path": paths, "file_name": rows["file_name"], "size_bytes": rows["size_bytes"]})

    def column_stats(self, columns: Sequence[str] | None = None, *, keys: pa.Array | None = None) -> pa.Table:
        """Return the statistics of files, a row for each file and column.

        The columns are ``key``, ``file_name``, ``column_name``, ``values``, ``nulls``, ``size_bytes``,
        ``unpacked_bytes``, ``is_tight``, and the bounds, which `lakeformat.metadata_table.bounds` reads. Nothing is
        known about a file without a row. Files that do not exist any more may have rows.

        Args:
            columns: Names of columns; None for all.
            keys: Keys of the wanted rows, in place of ``columns``; only the blocks that may have them are read.
        """
        if keys is not None:
            return _without_deleted(self._read(MetadataPartition.COLUMN_STATS, _Keys(keys), merge_statistics))
        return self._statistics(MetadataPartition.COLUMN_STATS, columns)

    def partition_stats(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the statistics of partitions, a row for each partition and column.

        The columns are those of `column_stats`, with ``partition_path`` instead of ``file_name``. Bounds that are not
        tight must not be used. Nothing is known about a partition without a row.

        Args:
            columns: Names of columns; None for all.
        """
        rows = self._statistics(MetadataPartition.PARTITION_STATS, columns)
        names = [table_partition(name or "") for name in rows["file_name"].to_pylist()]
        return rows.drop_columns(["file_name"]).append_column("partition_path", pa.array(names, pa.string()))

    def record_index(self, keys: pa.Array | None = None) -> pa.Table:
        """Return where keys are: ``key``, ``partition_path``, ``file_id``, ``instant_ms``. Keys not there have no row.

        A place is only sure if its file group is live.

        Args:
            keys: Record keys to look up; only their file groups, and in them only their blocks, are read. None for all
                keys of the table.
        """
        rows = self._read(MetadataPartition.RECORD_INDEX, None if keys is None else _Keys(keys), merge_newest)
        return rows.select(_PLACE)

    def secondary_index(self, partition: MetadataPartition, values: pa.Array | None = None) -> pa.Array:
        """Return the keys of a secondary index, see `lakeformat.metadata_table.secondary_keys`.

        Args:
            partition: The partition of the index.
            values: Values, as text, whose keys are looked up; only their file groups are read. None for all.
        """
        prefixes = None if values is None else _Prefixes(tuple(pc.unique(prefixes_of_values(values)).to_pylist()))
        rows = _without_deleted(self._read(partition, prefixes, merge_newest))
        return pa.concat_arrays([pa.nulls(0, pa.string()), *rows["key"].chunks])

    def look_up(self, keys: pa.Array) -> KeyPlaces:
        """Return where keys are, as `record_index` does, and what the look-up read. File groups are read in parallel.

        Memory: the blocks of as many file groups as there are cores, 32 MB each, and the result.
        """
        counts = _Counts()
        rows = self._read(MetadataPartition.RECORD_INDEX, _Keys(keys), merge_newest, counts)
        return KeyPlaces(rows.select(_PLACE), counts.groups, counts.bytes_read)

    def bloom_filters(self, files: Sequence[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
        """Return the text of the bloom filter of each base file, as in its footer. Files without one are left out.

        Args:
            files: Partition path and name of base files.
        """
        file_of = {bloom_key(*file): file for file in files}
        rows = self._read_filters(_Keys(pa.array(list(file_of), pa.string())))
        pairs = zip(rows["key"].to_pylist(), rows["filter"].to_pylist(), strict=True)
        return {file_of[key]: text for key, text in pairs}

    def read_filters(self, files: Sequence[tuple[str, str]]) -> dict[tuple[str, str], BloomFilter]:
        """Return the bloom filter of each base file, as `bloom_filters` does; without those that cannot be decoded."""
        file_of = {bloom_key(*file): file for file in files}
        rows = self._read_filters(_Keys(pa.array(list(file_of), pa.string())))
        decoded = {}
        for key, kind, text in zip(*(rows[name].to_pylist() for name in ("key", "type", "filter")), strict=True):
            with suppress(CorruptTableError):  # The file's keys are searched as if it had no filter here.
                decoded[file_of[key]] = BloomFilter.decode(text, kind)
        return decoded

    def _read_filters(self, keys: _Keys | None) -> pa.Table:
        return _without_deleted(self._read(MetadataPartition.BLOOM_FILTERS, keys, merge_newest))

    def _statistics(self, partition: MetadataPartition, columns: Sequence[str] | None) -> pa.Table:
        prefixes = None if columns is None else _Prefixes(tuple(statistics_prefix(column) for column in columns))
        return _without_deleted(self._read(partition, prefixes, merge_statistics))

    def read_schema(self) -> str:
        """Return the schema of the newest records, as JSON. New records are written with it."""
        for piece in self.list_slices(MetadataPartition.FILES):
            for log in reversed(piece.logs):
                for block in read_blocks(self.storage, log):
                    if block.kind is BlockKind.HFILE_DATA:
                        return block.require(HeaderKey.SCHEMA)
            if piece.base is not None:
                with self._open(piece.base) as source:
                    return HFile(source, piece.base, lambda _: None).info["schema"].decode()
        raise CorruptTableError(
            f"{self.storage.location}/{MetadataPartition.FILES.folder} has no records; run repair(), which makes the "
            "metadata table again"
        )

    # --- reading --------------------------------------------------------------------------------------

    def _read(
        self,
        partition: MetadataPartition,
        asked: _Keys | _Prefixes | None,
        merge: Callable[[Sequence[Batch]], pa.Table],
        counts: _Counts | None = None,
    ) -> pa.Table:
        """Read and merge the records of a partition, file group by file group.

        Args:
            counts: If given, what is read is added to it, and several file groups are read at once.
        """
        if not self.has(partition):
            raise CorruptTableError(
                f"the metadata table of {self.storage.location} has no partition {partition.value}; read without it"
            )
        slices = self.list_slices(partition)
        parts: Mapping[int, Any] = dict.fromkeys(range(len(slices)), asked)
        if asked is not None and partition.has_places:
            self._check_key_groups(partition, slices)
        if isinstance(asked, _Keys) or (asked is not None and partition.has_places):
            parts = asked.by_group(partition, len(slices))
        added = counts or _Counts()

        def read(piece: MetadataSlice) -> pa.Table:
            return merge(list(self._read_group(partition, piece, parts[piece.number], len(slices), added)))

        chosen = [piece for piece in slices if piece.number in parts]
        added.groups += len(chosen)
        tables = run_all(read, chosen, threads=1 if counts is None else max(1, pa.cpu_count()))
        return pa.concat_tables([merge([Batch(no_rows(partition))]), *tables], promote_options="default")

    def list_slices(self, partition: MetadataPartition) -> tuple[MetadataSlice, ...]:
        """Return the newest slice of each file group of a partition, by number."""
        slices = list_slices(self.storage, partition, self.instants)
        if not slices:
            raise CorruptTableError(
                f"{self.storage.location}/{partition.folder} has no files, though hoodie.properties names it; run "
                "repair(), which makes the metadata table again"
            )
        return slices

    def read_slice(self, partition: MetadataPartition, piece: MetadataSlice) -> pa.Table:
        """Return the merged records of one file slice, without those that are marked as deleted."""
        batches = list(self._read_group(partition, piece, None, len(self.list_slices(partition))))
        if partition is MetadataPartition.FILES:
            rows = merge_files(batches)
            return rows.append_column("is_deleted", pa.repeat(False, len(rows)))
        is_statistics = partition.kind in {RecordKind.COLUMN_STATS, RecordKind.PARTITION_STATS}
        rows = (merge_statistics if is_statistics else merge_newest)(batches)
        if partition is MetadataPartition.RECORD_INDEX:
            return rows
        return rows.filter(pc.invert(rows["is_deleted"].fill_null(False)))

    def _read_group(
        self,
        partition: MetadataPartition,
        piece: MetadataSlice,
        asked: _Keys | _Prefixes | None,
        groups: int,
        counts: _Counts | None = None,
    ) -> Iterator[Batch]:
        """Yield the records of the base file, then those of each counted block of the log files."""

        def open_hfile(source: Any, name: str) -> HFile:
            name = f"{self.storage.location}/{name}"
            return HFile(source, name, lambda keys: _check_group(partition, keys, piece.number, groups, name))

        counts = counts or _Counts()
        yield Batch(no_rows(partition))
        if piece.base is not None:
            with self._open(piece.base) as source:
                file = open_hfile(source, piece.base)
                yield _decode(partition, file, asked, None)
                counts.add(file.bytes_read)
        blocks = [block for log in piece.logs for block in read_blocks(self.storage, log)]
        counted = blocks_to_merge(blocks, self.instants.is_counted, has_hfiles=True)
        for block, content in read_contents(self.storage, counted):
            counts.add(content.size)
            if block.kind is BlockKind.DELETE:
                yield Batch(None, decode_deletes(block, content).keys)
            elif block.kind is BlockKind.HFILE_DATA:
                yield _decode(partition, open_hfile(content, block.name), asked, block)
            else:
                raise UnsupportedTableError(
                    f"{block.name} is of kind {block.kind.name}, which a metadata table does not have; run repair()"
                )

    def _open(self, path: str) -> Any:
        try:
            return self.storage.open_input(path)
        except FileNotFoundError:
            raise CorruptTableError(
                f"{self.storage.location}/{path} has gone while the metadata table was read; read again"
            ) from None


def _decode(
    partition: MetadataPartition, file: HFile, asked: _Keys | _Prefixes | None, block: LogBlock | None
) -> Batch:
    cells = file.read() if asked is None else asked.of(file)
    schema = None if block is None else block.header.get(HeaderKey.SCHEMA)
    schema = schema or file.info.get("schema", b"").decode(errors="replace")
    return Batch(decode_parts(partition, cells, schema, file.name))


def _check_group(partition: MetadataPartition, keys: pa.Array, number: int, groups: int, name: str) -> None:
    if (file_groups_of(partition, keys, groups) != number).any():
        raise CorruptTableError(
            f"{name} has keys of another file group than {number} of {groups}, so that look-ups would miss keys; run "
            "repair(), which makes the metadata table again"
        )


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """The answer of a look-up in the record index.

    Attributes:
        rows: ``key``, ``partition_path``, ``file_id``, ``instant_ms`` of each key that the index has.
        groups: Number of file groups that were read.
        bytes_read: Bytes that were read from them.
    """

    rows: pa.Table
    groups: int
    bytes_read: int


@dataclass(slots=True)
class _Counts:
    """What a look-up has read. Several threads add to it."""

    groups: int = 0
    bytes_read: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, size: int) -> None:
        with self.guard:
            self.bytes_read += size


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys to look up."""

    keys: pa.Array

    def by_group(self, partition: MetadataPartition, groups: int) -> Mapping[int, _Keys]:
        """Return the keys of each file group that has any."""
        keys = pc.unique(self.keys).drop_null()
        numbers = file_groups_of(partition, keys, groups)
        return {number: _Keys(keys.filter(pa.array(numbers == number))) for number in np.unique(numbers).tolist()}

    def of(self, file: HFile) -> pa.Table:
        """Return the cells of the keys that the file has."""
        return file.look_up(self.keys)


@dataclass(frozen=True, slots=True)
class _Prefixes:
    """Beginnings of keys. Keys of all file groups may have them, but in a secondary index."""

    prefixes: tuple[str, ...]

    def by_group(self, partition: MetadataPartition, groups: int) -> Mapping[int, _Prefixes]:
        """Return the beginnings of each file group of a secondary index: each is in one group."""
        numbers = file_groups_of(partition, pa.array(self.prefixes, pa.string()), groups)
        owners = list(zip(self.prefixes, numbers.tolist(), strict=True))
        return {
            number: _Prefixes(tuple(prefix for prefix, owner in owners if owner == number))
            for number in np.unique(numbers).tolist()
        }

    def of(self, file: HFile) -> pa.Table:
        """Return the cells of the file whose keys have one of the beginnings."""
        return pa.concat_tables([_NO_CELLS, *(file.prefix(prefix) for prefix in sorted(set(self.prefixes)))])


#: The key before all others: a look-up of it reads the first block of each HFile.
_FIRST: Final = _Keys(pa.array([""]))
_NO_CELLS: Final = pa.schema({"key": pa.string(), "value": pa.binary()}).empty_table()


def _without_deleted(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(rows["is_deleted"].fill_null(False))).drop_columns(["is_deleted"])


def _list_timeline(storage: Storage, config: TableConfig) -> list[str]:
    return [entry.name for entry in storage.list_at_once(f"{FOLDER}/{config.timeline_folder}") if not entry.is_folder]


def open_metadata_table(storage: Storage, config: TableConfig, timeline: Timeline) -> MetadataTable | None:
    """Open a table's metadata table. Return None if the table's properties name no partition ``files`` of it.

    Args:
        config: The table's properties.
        timeline: The table's active timeline. It decides, too, what counts in the metadata table. To be sure that no
            commit is missing in between, load it before this call.

    Raises:
        CorruptTableError: The metadata table is not there, or its properties cannot be read.
        UnsupportedTableError: The metadata table has a version that is not supported.
    """
    if MetadataPartition.FILES.value not in config.metadata_partitions or not config.traits.is_written:
        return None  # In a version that is only read, its files have other names: folders are listed.
    where = f"{storage.location}/{PROPERTIES}"
    try:
        own = TableConfig(properties.decode(storage.read(PROPERTIES), name=where))
    except FileNotFoundError:
        raise CorruptTableError(
            f"{where} is missing, though hoodie.properties names a metadata table; run repair(), which makes it again"
        ) from None
    if own.version not in TABLE_VERSIONS:
        raise UnsupportedTableError(f"{where}: version {own.version} of a metadata table is not supported")
    instants = MetadataInstants.of_file_names(_list_timeline(storage, own), timeline, own.traits)
    if not instants.completions:
        raise CorruptTableError(
            f"the metadata table of {storage.location} has no completed instant; run repair(), which makes it again"
        )
    return MetadataTable(storage, own, config.metadata_partitions, instants)
