"""Making, dropping and listing the indexes of a table: the partitions of its metadata table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from lakeformat.config.resolve import Options
from lakeformat.errors import CorruptTableError, InvalidInputError, UnsupportedTableError, nearest
from lakeformat.file_system_view.context import TableContext
from lakeformat.locks import lock_table
from lakeformat.metadata_table.index_definitions import SecondaryIndex, read_secondary_indexes, read_statistics_form
from lakeformat.metadata_table.metadata_table import MetadataTable, open_metadata_table
from lakeformat.metadata_table.names import MetadataPartition, RecordKind, partition_of_name, secondary_partition
from lakeformat.public import OneLine, public
from lakeformat.transaction.undo.recovery import recover
from lakeformat.transaction.upkeep.metadata_creation import MADE_PARTITIONS, drop_indexes, make_partitions

__all__ = ["Index", "Indexing"]

_NAMES: Final = tuple(partition.value for partition in MADE_PARTITIONS)
#: How like the name of a known index a new name must not be.
_LIKENESS: Final = 0.85
_INDEX_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_STATISTICS: Final = (MetadataPartition.COLUMN_STATS.value, MetadataPartition.PARTITION_STATS.value)


@public
@dataclass(frozen=True, slots=True, repr=False)
class Index(OneLine):
    """One index of a table: a partition of its metadata table (Hudi: ``hoodie.table.metadata.partitions``).

    Attributes:
        name: name of the index, such as ``record_index``.
        columns: the columns of which it has statistics, or the column of a secondary index; empty for other indexes.
        file_groups: number of its file groups; 0 if lakeformat cannot read it.
        size_bytes: bytes of its base files and log files that a reader opens.
    """

    name: str
    columns: tuple[str, ...] = ()
    file_groups: int = 0
    size_bytes: int = 0

    @property
    def type(self) -> str:
        """Return the type of the index: its name, or ``secondary_index``."""
        partition = partition_of_name(self.name)
        return "secondary_index" if partition and partition.kind is RecordKind.SECONDARY_INDEX else self.name

    def __str__(self) -> str:
        of = f" of {', '.join(self.columns)}" if self.columns else ""
        return f"{self.name}{of}: {self.file_groups:,} file groups, {self.size_bytes:,} bytes"


class _IndexSession:
    """Makes and drops the indexes of one table."""

    def __init__(self, context: TableContext, options: Options) -> None:
        self.context, self.options = context, options
        self.store, self.storage = context.store, context.storage

    def create(self, name: str, columns: Sequence[str] | None) -> Index:
        """Make an index, and the list of files if the table has no metadata table."""
        secondary = None if name in _NAMES else self._secondary(name, columns)
        if columns is not None and secondary is None and name != MetadataPartition.COLUMN_STATS.value:
            raise InvalidInputError(f"index {name} takes no columns; leave them out")
        options = self.options.metadata
        if columns is not None:
            self._check_columns(columns)
            options = options if secondary else replace(options, columns=tuple(columns))
        name = name if secondary is None else secondary.partition.value
        lock, clock = self.options.lock, self.context.clock
        with lock_table(self.storage, lock, service=True, clock=clock) as lease:
            config = self.store.config()
            config.check_writable(self.storage.location)
            recover(self.store, config, clock)
            made = make_partitions(self.store, clock, options, (name,), lock, lease, secondary)
        if name not in made:
            raise InvalidInputError(f"{self.storage.location} has index {name} already; drop it to make it again")
        return next(index for index in self.list() if index.name == name)

    def _secondary(self, name: str, columns: Sequence[str] | None) -> SecondaryIndex:
        """Return the secondary index that a name and its columns mean."""
        likely = nearest(name, _NAMES, _LIKENESS)
        if columns is None or likely or not _INDEX_NAME.fullmatch(name):
            raise InvalidInputError(
                f"there is no index {name!r} that lakeformat can make{likely}; it makes {', '.join(_NAMES)}, and a "
                "secondary index of one column under another name of letters, digits and '_'"
            )
        if len(columns) != 1:
            raise InvalidInputError(f"the secondary index {name} needs one column, not {len(columns)}; name one")
        return SecondaryIndex(secondary_partition(name), columns[0])

    def _check_columns(self, columns: Sequence[str]) -> None:
        names = frozenset(self.context.snapshot().columns(self.storage.location).names)
        unknown = [column for column in columns if column.partition(".")[0] not in names]
        if unknown or not columns:
            raise InvalidInputError(
                f"{self.storage.location} has no column {(unknown or [''])[0]!r} to index; it has "
                f"{', '.join(sorted(names))}"
            )

    def drop(self, name: str) -> tuple[str, ...]:
        """Drop an index, and those that need it. Return their names."""
        clock = self.context.clock
        with lock_table(self.storage, self.options.lock, service=True, clock=clock):
            config = self.store.config()
            recover(self.store, config, clock)
            names = _STATISTICS if name == _STATISTICS[0] else (name, secondary_partition(name).value)
            dropped = drop_indexes(self.store, clock, names)
        if not dropped:
            indexes = ", ".join(config.metadata_partitions) or "none"
            raise InvalidInputError(f"{self.storage.location} has no index {name!r}; it has {indexes}")
        return dropped

    def list(self) -> tuple[Index, ...]:
        """Return the indexes, sorted by name."""
        config = self.store.config()
        table: MetadataTable | None = None
        with suppress(CorruptTableError, UnsupportedTableError):
            table = open_metadata_table(self.storage, config, self.store.load())
        return tuple(self._describe(name, table) for name in sorted(config.metadata_partitions))

    def _columns_of(self, name: str, table: MetadataTable) -> tuple[str, ...]:
        if name == _STATISTICS[0]:
            return read_statistics_form(table).columns
        return tuple(index.column for index in read_secondary_indexes(table) if index.partition.value == name)

    def _describe(self, name: str, table: MetadataTable | None) -> Index:
        partition = partition_of_name(name)
        if table is None or partition is None:
            return Index(name)
        try:
            slices = table.list_slices(partition)
            columns = self._columns_of(name, table)
        except (CorruptTableError, UnsupportedTableError):
            return Index(name)
        logs = sum(log.size_bytes for piece in slices for log in piece.logs)
        infos = [self.storage.info(piece.base) for piece in slices if piece.base is not None]
        return Index(name, columns, len(slices), logs + sum(info.size_bytes for info in infos if info is not None))


@public
class Indexing:
    """The methods create_index, drop_index and indexes. Subclasses set the attributes."""

    context: TableContext
    options: Options

    def create_index(self, name: str, columns: Sequence[str] | None = None) -> Index:
        """Make an index of the table's metadata table, from all its files. Later writes keep it, and so does Hudi.

        The table's lock is held meanwhile, so other writers wait. The cost is that of a listing for ``files``, of all
        footers for ``column_stats`` and ``bloom_filters``, of all record keys for ``record_index``, and of the keys and
        one column for a secondary index, which says what rows have a value. A table without metadata table gets
        ``files``, too, and one without a record index gets that with its first secondary index. ``hoodie.metadata.*``
        options set the numbers of file groups.

        Args:
            name: ``files``, ``column_stats``, ``partition_stats`` (makes ``column_stats``, too), ``bloom_filters`` or
                ``record_index``. Any other name with one column makes a secondary index of the column, which is called
                ``secondary_index_<name>`` then, as in Hudi's ``create index``.
            columns: the columns of ``column_stats``; by default the first 32 whose type can have statistics. Or the
                column of a secondary index: of text, integers, or timestamps of microseconds in UTC.

        Returns:
            The new index.

        Raises:
            InvalidInputError: there is no such index or column, or the table has the index already.
            WriteConflictError: a write or a plan is pending; nothing was made.
            UnsupportedTableError: the index cannot be made of the table's files.
        """
        return _IndexSession(self.context, self.options).create(name, columns)

    def drop_index(self, name: str) -> tuple[str, ...]:
        """Drop an index: its name from the table's properties, then its files.

        Args:
            name: name of the index. ``files`` drops the whole metadata table, ``column_stats`` also
                ``partition_stats``, ``record_index`` also secondary indexes.

        Returns:
            The names of the indexes that are gone.

        Raises:
            InvalidInputError: the table has no such index.
        """
        return _IndexSession(self.context, self.options).drop(name)

    def indexes(self) -> tuple[Index, ...]:
        """Return the indexes that the table's properties name, sorted by name."""
        return _IndexSession(self.context, self.options).list()
