"""The last step of a write: build the commit's metadata, run the validators, publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeformat.codec.avro.schema import to_avro
from lakeformat.file_system_view.context import Engine
from lakeformat.file_system_view.log_file_stats import earlier_logs
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.commit import FILES_SCHEMA, CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId
from lakeformat.model.operation import Operation
from lakeformat.read.run.view import TableView
from lakeformat.timeline.write_report import REPORT_KEY, Report
from lakeformat.transaction.commit import CommitProtocol, NewKeyCheck, OpenCommit
from lakeformat.transaction.commit_listeners import Follower, Published
from lakeformat.transaction.conflict import check_beside, measured
from lakeformat.transaction.hooks import CommitMessage, Hooks, ProposedWrite, proposed_snapshot, run_validators
from lakeformat.transaction.settings import Purpose, last_batches, with_batch
from lakeformat.transaction.written_file import Written

__all__ = ["Outcome", "Publication"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a write that is not published yet.

    Attributes:
        schema: the table's columns after the write.
        snapshot: the table that the write started from.
        overwritten: partitions whose contents it replaces; None if it replaces none.
        check_new_keys: refuses commits that others have completed meanwhile: those that wrote keys of our new rows, or
            into the file groups of our plan.
        replaced: partition path -> file ids to hide; None hides all file groups of the partitions ``overwritten``.
        schema_text: the schema as an earlier commit carries it; "" writes ``schema``.
        files_schema: the columns of the files; ``schema`` by default.
    """

    schema: pa.Schema
    written: Sequence[Written]
    snapshot: Snapshot
    overwritten: frozenset[str] | None = None
    check_new_keys: NewKeyCheck | None = None
    replaced: Mapping[str, tuple[str, ...]] | None = None
    schema_text: str = ""
    files_schema: pa.Schema | None = None

    @property
    def stats(self) -> list[WriteStat]:
        """Return the statistics of the files written, in the order of their paths."""
        return sorted((file.stat for file in self.written), key=lambda stat: stat.path)

    @property
    def replaced_ids(self) -> Mapping[str, tuple[str, ...]]:
        """Return the file ids to hide by partition path."""
        if self.replaced is not None:
            return self.replaced
        live = self.snapshot.slices
        return {
            partition: tuple(piece.group.file_id for piece in live[partition])
            for partition in sorted(self.overwritten or ())
            if partition in live
        }


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The publication of one write."""

    engine: Engine
    purpose: Purpose
    hooks: Hooks
    report: Report
    protocol: CommitProtocol
    followers: Sequence[Follower]

    def finish(self, commit: OpenCommit, outcome: Outcome) -> Published:
        """Validate the write, publish it, and call the followers. Return the published commit.

        Raises:
            ValidationFailedError, WriteConflictError: nothing was published; the caller undoes.
            CommitStateUnknownError: the commit may or may not be visible; the caller leaves everything as it is.
        """
        stats, replaced = outcome.stats, outcome.replaced_ids
        opened = [stat for stat in stats if stat.prev_commit in {None, commit.time}]
        self._count(stats, len(opened), replaced)
        self._validate(commit, outcome.schema, stats, replaced)
        merged = (
            {FileGroupId(s.partition_path, s.file_id) for s in stats} if not self.purpose.operation.shares else set()
        )
        merged -= {FileGroupId(s.partition_path, s.file_id) for s in opened}
        hidden = {FileGroupId(partition, id_) for partition, ids in replaced.items() for id_ in ids}
        with self.report.step("publish"):
            batch = self.purpose.batch
            store = self.engine.store  # Load again: commits that the write started from may have been archived.
            last = last_batches(store, store.load(), batch.app if batch else None)
            batches = with_batch(last, batch)
            metadata = self._metadata(outcome, stats, replaced, batches)
            instant = self.protocol.publish(
                commit,
                metadata,
                touched=frozenset(merged | hidden),
                overwritten=outcome.overwritten,
                check_new_keys=_check_others(outcome, frozenset(stat.partition_path for stat in opened)),
                before=lambda: self._call_before_publish(commit),
            )
        published = Published(
            commit=commit,
            instant=instant,
            schema=outcome.schema,
            written=outcome.written,
            base=outcome.snapshot,
            hidden=frozenset(hidden),
            message=CommitMessage(
                commit.time,
                self.purpose.config.name,
                self.engine.storage.location,
                instant.action.value,
                self.purpose.operation.value,
                tuple(metadata.all_stats()),
                {**self.hooks.extra_metadata, **batches},
            ),
        )
        for follower in self.followers:
            follower.after_publish(published)
        return published

    def _call_before_publish(self, commit: OpenCommit) -> None:
        for follower in self.followers:
            follower.before_publish(commit)

    def _metadata(
        self,
        outcome: Outcome,
        stats: Sequence[WriteStat],
        replaced: Mapping[str, tuple[str, ...]],
        batches: Mapping[str, str],
    ) -> CommitMetadata:
        config, schema = self.purpose.config, outcome.schema
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in stats:
            by_partition.setdefault(stat.partition_path, []).append(stat)
        extra = {
            **self.hooks.extra_metadata,
            **batches,
            "schema": outcome.schema_text or to_avro(schema, table_name=config.name),
            REPORT_KEY: self.report.as_text(),
            **measured(outcome.written, config, schema),
            **earlier_logs(stats, outcome.snapshot.live),
        }
        if outcome.files_schema is not None and not outcome.files_schema.equals(schema):
            extra[FILES_SCHEMA] = to_avro(outcome.files_schema, table_name=config.name)
        return CommitMetadata(
            self.purpose.operation.name,
            {p: tuple(s) for p, s in by_partition.items()},
            extra,
            replaced,
            compacted=self.purpose.operation is Operation.COMPACT,
        )

    def _validate(
        self, commit: OpenCommit, schema: pa.Schema, stats: Sequence[WriteStat], replaced: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Run the validators on the table as it will be. Raise `ValidationFailedError` if one refuses."""
        if not self.hooks.validators:
            return
        snapshot = self.engine.snapshot()  # Load again: others may have published while the files were written.
        after = proposed_snapshot(snapshot, schema, stats, replaced, commit.time)
        storage = self.engine.storage
        with self.report.step("validate") as counted:
            views = TableView(storage, snapshot), TableView(storage, after)
            write = ProposedWrite(self.purpose.operation.value, *views, tuple(stats))
            run_validators(self.hooks.validators, write)
            counted["validators"] = len(self.hooks.validators)

    def _count(self, stats: Sequence[WriteStat], opened: int, replaced: Mapping[str, tuple[str, ...]]) -> None:
        if self.purpose.operation in {Operation.CLUSTER, Operation.COMPACT}:
            self.report.rows["rewritten"] = sum(stat.num_writes for stat in stats)
        else:
            self.report.rows.update(
                inserted=sum(stat.num_inserts for stat in stats),
                updated=sum(stat.num_updates for stat in stats),
                deleted=sum(stat.num_deletes for stat in stats),
            )
        self.report.files.update(
            created=opened,
            merged=len(stats) - opened,
            replaced=sum(map(len, replaced.values())),
            bytes=sum(stat.size_bytes for stat in stats),
        )


def _check_others(outcome: Outcome, opened: frozenset[str]) -> NewKeyCheck:
    """Return a check that refuses other commits whose partitions or keys conflict with those that are new here.

    Args:
        opened: partitions that get new file groups.
    """

    def check(others: Sequence[tuple[str, CommitMetadata]]) -> None:
        beside = {path for _, other in others for path in other.stats}
        check_beside(opened.difference(outcome.snapshot.live.partitions()), beside)
        if outcome.check_new_keys is not None:
            outcome.check_new_keys(others)

    return check
