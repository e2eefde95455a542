"""The registration of one table in one catalog: read both, plan, and change the catalog.

The properties `LAST_COMMIT` and `LAST_COMPLETION` of the entry say which commits the catalog knows. They are written
last. If a registration dies, the next one looks at the same commits again.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lakeformat.catalog.entry import CatalogEntry, CatalogPartition
from lakeformat.catalog.plan import (
    LAST_COMMIT,
    LAST_COMPLETION,
    Change,
    PartitionChanges,
    Partitioning,
    TableFacts,
    find_location,
    is_same_place,
    make_entries,
    plan_partitions,
    plan_table,
    touched_partitions,
    with_progress,
)
from lakeformat.catalog.port import Catalog
from lakeformat.config.catalog_options import CatalogOptions
from lakeformat.config.packages import catalog_package_problem
from lakeformat.errors import CatalogError, InvalidInputError, InvalidOptionError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import table_schema
from lakeformat.model.instant import format_instant_time
from lakeformat.model.table_config import TableConfig
from lakeformat.public import OneLine, public
from lakeformat.timeline.timeline import Timeline

__all__ = ["CatalogSession", "Registration", "check_client", "connect"]


@public
@dataclass(frozen=True, slots=True, repr=False)
class Registration(OneLine):
    """What a registration has changed in a catalog.

    Attributes:
        catalog: ``glue`` or ``hive``.
        tables: the names of the table in the catalog, ``database.name``; a merge-on-read table has up to three.
        created: those of them that were created.
        columns_changed: the columns that were added, dropped or got another type in tables that existed.
        partitions_added, partitions_changed, partitions_dropped: numbers of partitions, over all tables.
        seconds: the duration.
    """

    catalog: str
    tables: tuple[str, ...]
    created: tuple[str, ...] = ()
    columns_changed: tuple[str, ...] = ()
    partitions_added: int = 0
    partitions_changed: int = 0
    partitions_dropped: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return one line with the tables and the counts."""
        made = f" (created {', '.join(self.created)})" if self.created else ""
        columns = f"; columns changed: {', '.join(self.columns_changed)}" if self.columns_changed else ""
        counts = f"{self.partitions_added:,} added, {self.partitions_changed:,} changed, {self.partitions_dropped:,}"
        return f"{self.catalog}: {', '.join(self.tables)}{made}{columns}; partitions {counts} dropped"

    def as_step(self) -> dict[str, Any]:
        """Return the registration as a step of a write's report."""
        return {
            "step": "sync",
            "seconds": self.seconds,
            "catalog": self.catalog,
            "table": ", ".join(self.tables),
            **({"created": ", ".join(self.created)} if self.created else {}),
            "partitions_added": self.partitions_added,
            "partitions_changed": self.partitions_changed,
            "partitions_dropped": self.partitions_dropped,
            **({"columns_changed": ", ".join(self.columns_changed)} if self.columns_changed else {}),
        }


def check_client(catalog: str) -> None:
    """Raise `InvalidOptionError` if the package that a catalog needs is not installed."""
    if text := catalog_package_problem(catalog):
        raise InvalidOptionError(text)


def connect(catalog: str, options: CatalogOptions) -> Catalog:
    """Connect to a catalog.

    Raises:
        CatalogError: the catalog cannot be reached, or its package is missing.
    """
    module = importlib.import_module(f"lakeformat.catalog.{catalog}")  # Its packages are imported only if it is used.
    client: Catalog = module.connect_glue(options.glue) if catalog == "glue" else module.connect_hive(options)
    return client


@dataclass(frozen=True)
class _TableState:
    """The table's settings and commits when the registration read them."""

    context: TableContext
    config: TableConfig
    timeline: Timeline

    @classmethod
    def load(cls, context: TableContext) -> _TableState:
        config = context.store.config()
        config.check_changeable(context.storage.location)
        return cls(context, config, context.store.load())

    @cached_property
    def completions(self) -> Mapping[str, str]:
        """Return the completion time of each commit. In layout 1 it is the time of its file, as in Hudi."""
        store, commits = self.context.store, self.timeline.commits
        if self.timeline.layout.has_completion_times:
            return {commit.time: commit.completed_at for commit in commits}
        times = {commit.time: store.modified_ms(commit) for commit in commits}
        return {time: format_instant_time(ms, self.config.zone) for time, ms in times.items() if ms is not None}

    def has_all_since(self, instant_time: str) -> bool:
        """Tell whether this commit and all later ones are on the timeline.

        If not, the commit or later ones are archived (a savepoint may keep older ones), or a restore has removed it.
        """
        return instant_time in self.timeline.commit_times and instant_time >= (self.timeline.oldest_write or "")

    @property
    def last_commit(self) -> str:
        """Return the greatest instant time of the commits; "" if there are none."""
        return max(self.timeline.commit_times, default="")

    @property
    def last_completion(self) -> str:
        """Return the greatest completion time of the commits; "" if there are none."""
        return max(self.completions.values(), default="")

    def facts(self, spark_version: str) -> TableFacts:
        """Return what is registered of the table.

        Raises:
            InvalidInputError: the table has no columns yet.
        """
        store = self.context.store
        schema = table_schema(store, self.config, self.timeline.commits, ())
        if schema is None:
            schema = self.context.snapshot().schema
        if schema is None:
            raise InvalidInputError(f"{store.storage.location} has no columns yet; write rows before you register it")
        return TableFacts(
            config=self.config, location=store.storage.location, schema=schema, spark_version=spark_version
        )


class CatalogSession:
    """Registers one table in one catalog."""

    def __init__(self, context: TableContext, options: CatalogOptions, catalog: str, client: Catalog) -> None:
        self._context, self._options, self._catalog, self._client = context, options, catalog, client

    def register(self, *, full: bool = False, again: bool = False) -> Registration:
        """Register the table.

        Args:
            full: whether all partitions are compared, not only those of commits since the last registration.
            again: whether an entry is compared even if it has the newest commit.

        Raises:
            CatalogError: the catalog refuses a change, cannot be reached, or the database is missing.
            InvalidInputError: the table has no columns, or a partition path does not fit the partition fields.
        """
        clock = self._context.clock
        start = clock.seconds()
        entries = self._load()[1]
        self._ensure_database(entries[0].database)
        parts = [self._register_entry(number, entry, full=full, again=again) for number, entry in enumerate(entries)]
        columns = dict.fromkeys(name for part in parts for name in part.columns_changed)
        return Registration(
            catalog=self._catalog,
            tables=tuple(entry.full_name for entry in entries),
            created=tuple(name for part in parts for name in part.created),
            columns_changed=tuple(columns),
            partitions_added=sum(part.partitions_added for part in parts),
            partitions_changed=sum(part.partitions_changed for part in parts),
            partitions_dropped=sum(part.partitions_dropped for part in parts),
            seconds=round(clock.seconds() - start, 4),
        )

    def _load(self) -> tuple[_TableState, tuple[CatalogEntry, ...]]:
        """Read the table, and make its entries."""
        state = _TableState.load(self._context)
        facts = state.facts(self._options.spark_version or _find_version("pyspark"))
        return state, make_entries(facts, self._options, self._catalog)

    def _ensure_database(self, database: str) -> None:
        if self._client.has_database(database):
            return
        if not self._options.creates_database:
            raise CatalogError(
                f"{self._catalog} has no database {database}; create it, or set "
                "hoodie.datasource.hive_sync.auto_create_database=true"
            )
        self._client.create_database(database)

    def _register_entry(self, number: int, wanted: CatalogEntry, *, full: bool, again: bool) -> Registration:
        """Register one of the table's entries.

        The table is read again after the catalog, so that it has all commits which the catalog knows.
        """
        stored = self._client.find_table(wanted.database, wanted.name)
        state, entries = self._load()
        wanted = entries[number]
        progress = stored.properties if stored is not None and is_same_place(stored.location, wanted.location) else {}
        if not (again or full) and self._options.is_incremental and self._is_current(state, progress):
            return Registration(self._catalog, (wanted.full_name,))
        planned = plan_table(wanted, stored, recreates=self._options.recreates)
        is_new = planned.change in {Change.CREATE, Change.RECREATE}
        if planned.change is Change.RECREATE:
            self._client.drop_table(wanted)
        if is_new and not self._client.create_table(wanted):
            return self._register_entry(number, wanted, full=full, again=again)  # Another writer has created it.
        if planned.change is Change.ALTER and planned.columns:
            # The metastore changes its partitions by itself. In Glue only a new type must reach the partitions.
            cascade = bool(wanted.partition_keys) and (self._catalog == "hive" or planned.retyped)
            self._client.alter_table(wanted, cascade=cascade)
        changes = self._change_partitions(wanted, state, {} if is_new else progress, full=full)
        if planned.change is not Change.NONE or changes != PartitionChanges() or not self._options.is_conditional:
            writer = f"lakeformat {_find_version('lakeformat')}".rstrip()
            has_path = self._catalog == "hive"
            entry = with_progress(wanted, state.last_commit, state.last_completion, writer, has_path=has_path)
            self._client.alter_table(entry, cascade=False)
        return Registration(
            self._catalog,
            (wanted.full_name,),
            created=(wanted.full_name,) if is_new else (),
            columns_changed=planned.columns if planned.change is Change.ALTER else (),
            partitions_added=len(changes.added),
            partitions_changed=len(changes.changed) + len(changes.touched),
            partitions_dropped=len(changes.dropped),
        )

    def _is_current(self, state: _TableState, progress: Mapping[str, str]) -> bool:
        """Tell whether an entry has the newest commit."""
        completion = progress.get(LAST_COMPLETION, state.last_completion)
        return progress.get(LAST_COMMIT) == state.last_commit and completion == state.last_completion

    def _change_partitions(
        self, entry: CatalogEntry, state: _TableState, progress: Mapping[str, str], *, full: bool
    ) -> PartitionChanges:
        """Plan the changes of an entry's partitions, and make them."""
        options = self._options
        location = find_location(self._context.storage.location, options, self._catalog)
        partitioning = Partitioning.of(state.config, options, location)
        if options.skips_partitions or not partitioning.fields:
            return PartitionChanges()
        last = progress.get(LAST_COMMIT, "")
        is_complete = full or not options.is_incremental or not state.has_all_since(last)
        partitions: Sequence[CatalogPartition]
        paths: Sequence[str]
        dropped: frozenset[str] = frozenset()
        if is_complete:
            partitions = self._client.list_partitions(entry)
            paths = tuple(self._context.snapshot().slices)
        else:
            paths, dropped = self._touched_since(state, last, progress.get(LAST_COMPLETION))
            values = [partition.values for path in paths if (partition := partitioning.partition(path)) is not None]
            partitions = self._client.find_partitions(entry, values) if values else ()
        changes = plan_partitions(
            paths, dropped, partitions, partitioning, is_complete=is_complete, touches=options.touches_partitions
        )
        if changes.added:
            self._client.add_partitions(entry, changes.added)
        if moved := (*changes.changed, *changes.touched):
            self._client.change_partitions(entry, moved)
        if changes.dropped:
            self._client.drop_partitions(entry, changes.dropped)
        return changes

    def _touched_since(
        self, state: _TableState, last: str, completion: str | None
    ) -> tuple[tuple[str, ...], frozenset[str]]:
        """Return the partition paths of the commits that an entry does not know, and those that they have dropped.

        An older commit that completed later than all known ones is such a commit, too.
        """
        commits = [
            commit
            for commit in state.timeline.commits
            if commit.time > last or (completion is not None and state.completions.get(commit.time, "") > completion)
        ]
        return touched_partitions(map(self._context.store.read_commit, commits))


def _find_version(package: str) -> str:
    """Return the version of an installed package; "" if it is not installed."""
    with suppress(PackageNotFoundError):
        return version(package)
    return ""
