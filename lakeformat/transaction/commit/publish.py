"""Publishing a commit: its metadata, the validators, the checks beside other writers, the completed file, listeners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakeformat.codec.avro.schema import to_avro
from lakeformat.codec.internal_schema import LATEST_SCHEMA, encode_internal_schema
from lakeformat.codec.stored_types import without_operation
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.log_file_stats import earlier_log_facts
from lakeformat.model.commit import FILES_SCHEMA, CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Instant
from lakeformat.model.operation import Operation
from lakeformat.read.run.view import TableView
from lakeformat.storage.port import Lease
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.write_report import REPORT_KEY, Report
from lakeformat.transaction.commit.checks import CommitChecks, Proposal
from lakeformat.transaction.commit.commit_listeners import (
    Callbacks,
    CommitListener,
    FileIndexUpdater,
    HashingMetadataWriter,
    MetadataTableWriter,
    PublishedCommit,
    SchemaHistoryWriter,
)
from lakeformat.transaction.commit.completed_file import OpenCommit, put_completed
from lakeformat.transaction.commit.hooks import CommitMessage, Hooks, ProposedWrite, run_validators
from lakeformat.transaction.commit.nested_partitions import make_off_folder_entry
from lakeformat.transaction.order.batch_ids import make_batches_entry, read_last_batches
from lakeformat.transaction.order.outcome import Outcome, make_proposed_snapshot
from lakeformat.transaction.order.settings import TransactionSettings

__all__ = ["BatchWrittenError", "Publisher"]


class BatchWrittenError(WriteConflictError):
    """Another run of the same batch was published while this one was running."""


class Publisher:
    """Makes commits of one writer visible.

    Attributes:
        listeners: what is called around each commit, in this order.
    """

    def __init__(self, context: TableContext, settings: TransactionSettings, hooks: Hooks) -> None:
        self._context, self._settings, self._hooks = context, settings, hooks
        self.listeners: tuple[CommitListener, ...] = (
            MetadataTableWriter(context, settings.metadata.compact_commits),
            SchemaHistoryWriter(context),
            HashingMetadataWriter(context, settings.first_buckets),
            *([FileIndexUpdater(context, settings.index)] if settings.keeps_index else []),
            Callbacks(hooks.callbacks),
        )
        self._published: PublishedCommit | None = None

    def publish(self, commit: OpenCommit, outcome: Outcome, report: Report, lease: Lease | None) -> None:
        """Validate a write, make it visible, and call the listeners. Call it under the lock.

        Args:
            report: the write's report, which gets counts and steps.
            lease: the lease of the lock, if Hudi's writers respect it, too; else None.

        Raises:
            ValidationFailedError, WriteConflictError: nothing was published; the caller must undo the write.
            CommitStateUnknownError: the commit may or may not be visible; the caller must delete nothing.
        """
        for listener in self.listeners:
            listener.add_counts(report)
        operation, stats, replaced = self._settings.operation, outcome.stats, outcome.replaced_ids
        opened = [stat for stat in stats if stat.prev_commit in {None, commit.time}]
        _count_rows(operation, report, stats, len(opened), replaced)
        report.columns = _changed_columns(outcome)
        self._validate(commit, outcome, report)
        changed = [] if operation.allows_appends else stats
        merged = {stat.group for stat in changed} - {stat.group for stat in opened}
        hidden = frozenset(FileGroupId(partition, id_) for partition, ids in replaced.items() for id_ in ids)
        proposal = Proposal(
            commit=commit,
            metadata=self._make_metadata(commit, outcome, report),
            outcome=outcome,
            touched=hidden | merged,
            opened=frozenset(stat.partition_path for stat in opened),
        )
        with report.step("publish"):
            instant, batches = self._put_completed(proposal, lease)
        self._published = PublishedCommit(
            commit=commit,
            instant=instant,
            schema=outcome.schema,
            written=outcome.written,
            base=outcome.snapshot,
            hidden=hidden,
            message=CommitMessage(
                commit.time,
                self._settings.config.name,
                self._context.storage.location,
                instant.action.value,
                operation.value,
                tuple(proposal.metadata.all_stats()),
                {**self._hooks.extra_metadata, **batches},
            ),
        )
        for listener in self.listeners:
            listener.after_publish(self._published)

    def call_after_release(self) -> None:
        """Call the listeners if a commit was published under the lock, which is released now."""
        published, self._published = self._published, None
        if published is not None:
            for listener in self.listeners:
                listener.after_release(published)

    def _validate(self, commit: OpenCommit, outcome: Outcome, report: Report) -> None:
        """Run the validators on the table as the commit will make it.

        Raises:
            ValidationFailedError: a validator refuses the write.
        """
        hooks = self._hooks
        if not hooks.validators:
            return
        snapshot = self._context.snapshot()  # Load the newest snapshot: other writers may have published meanwhile.
        after = make_proposed_snapshot(snapshot, outcome.schema, outcome.stats, outcome.replaced_ids, commit.time)
        with report.step("validate") as counted:
            views = TableView(self._context.storage, snapshot), TableView(self._context.storage, after)
            run_validators(hooks, ProposedWrite(self._settings.operation.value, *views, tuple(outcome.stats)))
            counted["validators"] = len(hooks.validators)

    def _make_metadata(self, commit: OpenCommit, outcome: Outcome, report: Report) -> CommitMetadata:
        """Return the metadata of the completed file, without the batch ids."""
        settings, schema, stats = self._settings, outcome.schema, outcome.stats
        config = settings.config
        by_partition: dict[str, list[WriteStat]] = {}
        errors = report.rows.get("set_aside", 0)
        for number, stat in enumerate(stats):
            counted = replace(stat, write_errors=errors) if errors and not number else stat
            by_partition.setdefault(stat.partition_path, []).append(counted)
        extra = {
            **self._hooks.extra_metadata,
            "schema": outcome.schema_text or to_avro(without_operation(schema), table_name=config.name),
            REPORT_KEY: report.as_text(),
            **make_off_folder_entry(outcome.written, config, schema),
            **earlier_log_facts(stats, outcome.snapshot.live),
        }
        if schemas := outcome.schemas_after(commit.time):
            extra[LATEST_SCHEMA] = encode_internal_schema(schemas[-1])
        if outcome.files_schema is not None and not outcome.files_schema.equals(schema):
            extra[FILES_SCHEMA] = to_avro(outcome.files_schema, table_name=config.name)
        return CommitMetadata(
            settings.operation.name,
            {path: tuple(stats) for path, stats in by_partition.items()},
            extra,
            outcome.replaced_ids,
            compacted=settings.operation is Operation.COMPACT,
        )

    def _put_completed(self, proposal: Proposal, lease: Lease | None) -> tuple[Instant, Mapping[str, str]]:
        """Check for conflicts with commits completed since the write began, then create the completed file.

        Return the completed instant and the extra metadata entry with the batch ids.
        """
        commit, metadata = proposal.commit, proposal.metadata
        checks = CommitChecks(self._context, self._settings.lock, proposal)
        batches: dict[str, str] = {}

        def check(timeline: Timeline) -> CommitMetadata:
            batches.update(self._make_batches_entry(checks.run(timeline)))
            return replace(metadata, extra={**metadata.extra, **batches})

        def call_before_publish() -> None:
            for listener in self.listeners:
                listener.before_publish(commit, metadata, proposal.outcome)

        store, clock = self._context.store, self._context.clock
        instant = put_completed(store, clock, commit, check=check, before_put=call_before_publish, lease=lease)
        return instant, batches

    def _make_batches_entry(self, timeline: Timeline) -> Mapping[str, str]:
        """Return the entry with the last batch id of each app, this write's included.

        Raises:
            BatchWrittenError: another run of this batch has been published meanwhile.
        """
        batch = self._settings.batch
        last = read_last_batches(self._context.store, timeline, batch.app if batch else None)
        if batch is not None and (stored := last.get(batch.app)) is not None and batch.id <= stored:
            raise BatchWrittenError(
                f"batch {batch.id} of {batch.app!r} was written to {self._context.storage.location} by another run "
                "meanwhile; run the write again, it will be skipped"
            )
        return make_batches_entry(last, batch)


def _changed_columns(outcome: Outcome) -> dict[str, str]:
    """Return the columns that rows of a write add or change in type, with their types; nothing for an alteration."""
    before = outcome.snapshot.schema
    if before is None or outcome.altered is not None:
        return {}
    types_before = {field.name: field.type for field in before}
    return {field.name: str(field.type) for field in outcome.schema if types_before.get(field.name) != field.type}


def _count_rows(
    operation: Operation,
    report: Report,
    stats: Sequence[WriteStat],
    opened: int,
    replaced: Mapping[str, tuple[str, ...]],
) -> None:
    """Add numbers of rows and files to the write's report. ``opened`` is the number of files in new file groups."""
    if operation in {Operation.CLUSTER, Operation.COMPACT}:
        report.rows["rewritten"] = sum(stat.num_writes for stat in stats)
    else:
        report.rows.update(
            inserted=sum(stat.num_inserts for stat in stats),
            updated=sum(stat.num_updates for stat in stats),
            deleted=sum(stat.num_deletes for stat in stats),
        )
    report.files.update(
        created=opened,
        merged=len(stats) - opened,
        replaced=sum(map(len, replaced.values())),
        bytes=sum(stat.size_bytes for stat in stats),
    )
