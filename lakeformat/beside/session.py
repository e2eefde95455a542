"""One sync: read the face, then the table, compare, and add one version. Start here.

The face is read before the table. So the table that is compared has all commits which the face shows, and a version
that is put although another writer has put one meanwhile is refused by the storage: no sync takes another one back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakeformat.beside import delta_actions as delta
from lakeformat.beside.delta_log import DeltaLog, delete_log, put_version, read_log
from lakeformat.beside.face import Face, FileChanges, compare_files
from lakeformat.beside.shown import check_shown, read_footers, values_of_folders
from lakeformat.catalog.types import spark_schema_json
from lakeformat.concurrency import tries
from lakeformat.errors import CorruptTableError, InstantNotAvailableError, SyncError, UnsupportedTableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.predicate import column_path
from lakeformat.public import OneLine, public

__all__ = ["FaceSync", "Lag", "SyncSession"]

_PAUSES: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0)


@public
@dataclass(frozen=True, slots=True, repr=False)
class FaceSync(OneLine):
    """What a sync has changed in the metadata of another format beside the table.

    Attributes:
        format: ``delta``.
        version: the newest version of the metadata; -1 if there is none.
        instant_time: instant time of the newest commit that it shows; "" if there is none.
        files_added, files_removed: numbers of files that it shows now and did not, and the other way round.
        columns_changed: whether it has other columns now.
        skipped: why nothing was done; "" if something was.
        seconds: the duration.
    """

    format: str
    version: int
    instant_time: str
    files_added: int = 0
    files_removed: int = 0
    columns_changed: bool = False
    skipped: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return one line with the version and the counts."""
        if self.skipped:
            return f"{self.format}: {self.skipped}"
        columns = ", columns changed" * self.columns_changed
        return (
            f"{self.format}: version {self.version} shows {self.instant_time}; {self.files_added:,} files added, "
            f"{self.files_removed:,} removed{columns}"
        )

    def as_step(self) -> dict[str, Any]:
        """Return the sync as a step of a write's report."""
        return {
            "step": "sync",
            "seconds": self.seconds,
            "format": self.format,
            "version": self.version,
            "files_added": self.files_added,
            "files_removed": self.files_removed,
            **({"skipped": self.skipped} if self.skipped else {}),
        }


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a face is behind the table.

    Attributes:
        can_follow: whether a sync would bring it up to date.
    """

    text: str
    can_follow: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a version changes."""

    snapshot: Snapshot
    schema: pa.Schema
    files: FileChanges
    columns_changed: bool

    def __bool__(self) -> bool:
        return bool(self.files) or self.columns_changed


class SyncSession:
    """Brings the Delta log beside one table up to date."""

    def __init__(self, context: TableContext) -> None:
        self._context, self._storage = context, context.storage

    def run(self, *, replace: bool = False) -> FaceSync:
        """Add a version that shows the table as it is now, if the newest one does not.

        Args:
            replace: whether the log is deleted first, even one of another program.

        Raises:
            UnsupportedTableError: the base files alone do not have the table's rows.
            SyncError: another program wrote the log, or other writers were faster each time.
            CorruptTableError: a file of the log or of the table is missing or damaged.
        """
        clock = self._context.clock
        start = clock.seconds()
        if replace:
            delete_log(self._storage)
        for _ in tries(_PAUSES):
            log = read_log(self._storage)
            self._check_own(log)
            plan = self._plan(log)
            if plan is None:
                return FaceSync("delta", log.version, "", skipped="the table has no columns yet; nothing is shown")
            if not plan:
                seconds = round(clock.seconds() - start, 4)
                return FaceSync(
                    "delta", log.version, log.face.instant_time, skipped="nothing has changed", seconds=seconds
                )
            version = put_version(self._storage, log, list(self._actions(log, plan)), clock.now_ms())
            if version is not None:
                return FaceSync(
                    "delta",
                    version,
                    plan.snapshot.instant_time or "",
                    plan.files.added_count,
                    len(plan.files.removed),
                    plan.columns_changed,
                    seconds=round(clock.seconds() - start, 4),
                )
        raise SyncError(f"{self._storage.location}: other writers added versions to _delta_log each time; sync again")

    def mend(self) -> FaceSync:
        """Do as `run`. If the log is damaged, make it anew."""
        try:
            return self.run()
        except CorruptTableError:
            return self.run(replace=True)

    def find_lag(self) -> Lag | None:
        """Return how far a log that lakeformat wrote is behind the table; None if it is not, or there is none."""
        try:
            log = read_log(self._storage)
        except CorruptTableError as error:
            return Lag(str(error), can_follow=True)
        if log.version < 0 or not log.is_own:
            return None
        try:
            plan = self._plan(log)
        except UnsupportedTableError as error:
            return Lag(f"it shows {log.face.instant_time or 'no commit'}: {error}", can_follow=False)
        except (CorruptTableError, InstantNotAvailableError):
            return None  # The table itself is damaged, which other checks say.
        return Lag(_describe_lag(log.face, plan), can_follow=True) if plan else None

    def _check_own(self, log: DeltaLog) -> None:
        if not log.is_own:
            raise SyncError(
                f"{self._storage.location}: version {log.version} of _delta_log was written by "
                f"{log.info.get('engineInfo', 'another program')}, so the log may show rows that the table does not "
                "have; load them into the table, then sync('delta', replace=True) deletes that log and makes it anew"
            )

    def _plan(self, log: DeltaLog) -> _Plan | None:
        """Load the table and compare it with the log. Return None if the table has no columns."""
        snapshot = self._context.snapshot(use_metadata_table=True)
        if snapshot.schema is None:
            return None
        check_shown(snapshot, self._storage.location)
        schema = snapshot.schema
        paths = [column_path([name]) for name in delta.bounded_columns(schema)]
        portions = snapshot.live.portions(paths)
        changed = log.metadata.get("schemaString") != spark_schema_json(schema) or list(
            log.metadata.get("partitionColumns") or ()
        ) != self._partition_columns(snapshot)
        return _Plan(snapshot, schema, compare_files(portions, log.paths), changed)

    @staticmethod
    def _partition_columns(snapshot: Snapshot) -> list[str]:
        config = snapshot.config
        return list(config.partition_fields) if config.drops_partition_columns else []

    def _actions(self, log: DeltaLog, plan: _Plan) -> Iterator[Mapping[str, Any]]:
        """Yield the actions of a version."""
        snapshot, schema, now = plan.snapshot, plan.schema, self._context.clock.now_ms()
        dropped = self._partition_columns(snapshot)
        added = plan.files.added
        if plan.columns_changed and log.paths:
            # Files that stay must fit the new columns, too.
            read_footers(self._storage, snapshot.live.portions(), schema, frozenset(dropped))
        rows = read_footers(self._storage, added, schema, frozenset(dropped))
        values = values_of_folders(snapshot, schema, added, delta.partition_text)
        newest = snapshot.timeline.find(snapshot.instant_time) if snapshot.instant_time else None
        operation = self._context.store.read_commit(newest).operation if newest else "CREATE"
        yield delta.commit_info(snapshot.instant_time or "", _last_completion(snapshot), operation, now)
        protocol = delta.protocol_of(schema)
        if protocol["minReaderVersion"] > log.protocol.get("minReaderVersion", 0):
            yield {"protocol": protocol}
        if plan.columns_changed:
            yield {"metaData": self._metadata(log, schema, dropped, now)}
        yield from delta.remove_actions(plan.files.removed, now)
        for portion, counts in zip(added, rows, strict=True):
            yield from delta.add_actions(portion, counts, values, schema, now)

    def _metadata(self, log: DeltaLog, schema: pa.Schema, dropped: list[str], now_ms: int) -> Mapping[str, Any]:
        known = log.metadata
        return {
            "id": known.get("id") or str(uuid.UUID(self._context.ids.token())),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": spark_schema_json(schema),
            "partitionColumns": dropped,
            "configuration": {},
            "createdTime": known.get("createdTime") or now_ms,
        }


def _describe_lag(face: Face, plan: _Plan) -> str:
    commits = sum(commit.completed_at > face.completed for commit in plan.snapshot.timeline.commits)
    files = f"{plan.files.added_count:,} files to add, {len(plan.files.removed):,} to remove"
    behind = f"{commits} commit{'' if commits == 1 else 's'} behind the table"
    return f"it shows {face.instant_time or 'no commit'}, {behind} ({files}): sync('delta')"


def _last_completion(snapshot: Snapshot) -> str:
    return max((commit.completed_at for commit in snapshot.timeline.commits), default="")
