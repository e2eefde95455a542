"""The last step: what the commit carries, validators, and the completed file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakeformat.codec.avro_schema import to_avro
from lakeformat.config.write_options import FILE_INDEX, INDEX_COMMITS, INDEX_SHARD_FILES
from lakeformat.model.commit import FILES_SCHEMA, CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import State
from lakeformat.read.view import TableView
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.file_index.keep import IndexWriter
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.report import REPORT_KEY, Report
from lakeformat.transaction.batch_ids import batch_of, last_batches, with_batch
from lakeformat.transaction.callbacks import CommitMessage
from lakeformat.transaction.commit import CommitProtocol, NewKeyCheck, OpenCommit
from lakeformat.transaction.hooks import Hooks
from lakeformat.transaction.validators import ProposedWrite, proposed_snapshot, run_validators
from lakeformat.transaction.written import Written
from lakeformat.write.folders import check_beside, measured
from lakeformat.write.job import Operation, WriteJob

__all__ = ["Publication"]

_LOG: Final = logging.getLogger("lakeformat.file_index")


@dataclass(frozen=True)
class Publication:
    """Makes one write visible."""

    engine: Engine
    job: WriteJob
    hooks: Hooks
    report: Report
    protocol: CommitProtocol

    def finish(
        self,
        commit: OpenCommit,
        schema: pa.Schema,
        written: Sequence[Written],
        snapshot: Snapshot,
        overwritten: frozenset[str] | None,
        check_new_keys: NewKeyCheck | None,
        *,
        replaced: Mapping[str, tuple[str, ...]] | None = None,
        schema_text: str = "",
        files_schema: pa.Schema | None = None,
    ) -> CommitMessage:
        """Validate, then publish with everything the commit carries. Returns what callbacks are told.

        Args:
            replaced: partition path -> file ids to hide, where it is not all of the partitions ``overwritten``.
            schema_text: the schema as an earlier commit carries it; "" writes ``schema``.
            files_schema: the columns of the files; ``schema`` by default.

        Raises:
            ValidationFailedError, WriteConflictError: nothing was published; the caller undoes.
            CommitStateUnknownError: nobody can tell; the caller leaves everything as it is.
        """
        stats = sorted((file.stat for file in written), key=lambda stat: stat.path)
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in stats:
            by_partition.setdefault(stat.partition_path, []).append(stat)
        if replaced is None:
            replaced = {
                partition: tuple(file.name.file_id for file in snapshot.by_partition[partition])
                for partition in sorted(overwritten or ())
                if partition in snapshot.by_partition
            }
        self._count(stats, replaced)
        self._validate(schema, stats, replaced)
        merged = {FileGroupId(s.partition_path, s.file_id) for s in stats if s.prev_commit is not None}

        def check_others(others: Sequence[tuple[str, CommitMetadata]]) -> None:
            opened = {stat.partition_path for stat in stats if stat.prev_commit is None}
            beside = {path for _, other in others for path in other.stats}
            check_beside(opened.difference(snapshot.live.partitions()), beside)
            if check_new_keys is not None:
                check_new_keys(others)

        hidden = {FileGroupId(partition, id_) for partition, ids in replaced.items() for id_ in ids}
        with self.report.step("publish"):
            batches = with_batch(last_batches(self.engine.store, snapshot.timeline), batch_of(self.job.options))
            extra = {
                **self.hooks.extra_metadata,
                **batches,
                "schema": schema_text or to_avro(schema, table_name=self.job.config.name),
                REPORT_KEY: self.report.as_text(),
                **measured(written, self.job.config, schema),
            }
            if files_schema is not None and not files_schema.equals(schema):
                extra[FILES_SCHEMA] = to_avro(files_schema, table_name=self.job.config.name)
            metadata = CommitMetadata(
                self.job.operation.name, {p: tuple(s) for p, s in by_partition.items()}, extra, replaced
            )
            self.protocol.publish(
                commit,
                metadata,
                touched=frozenset(merged | hidden),
                overwritten=overwritten,
                check_new_keys=check_others,
            )
        self._index(commit, schema, written, snapshot, hidden)
        return CommitMessage(
            commit.time,
            self.job.config.name,
            self.engine.storage.location,
            commit.instant.action.value,
            self.job.operation.value,
            tuple(metadata.all_stats()),
            {**self.hooks.extra_metadata, **batches},
        )

    def _index(
        self,
        commit: OpenCommit,
        schema: pa.Schema,
        written: Sequence[Written],
        snapshot: Snapshot,
        hidden: set[FileGroupId],
    ) -> None:
        """Tell the file index. The commit is visible already: nothing here makes it fail."""
        if not self.job.options[FILE_INDEX]:
            return
        options = self.job.options
        try:
            files = [(file.stat.base_file, file.facts) for file in written]
            index = IndexWriter(
                self.engine.store,
                self.engine.clock,
                self.job.indexed(schema),
                schema,
                options[INDEX_COMMITS],
                options[INDEX_SHARD_FILES],
            )
            index.committed(snapshot, commit.instant.at(State.COMPLETED), files, frozenset(hidden))
        except Exception as error:  # Whoever took one for the write's failure would write its rows twice.
            _LOG.warning(
                "the file index of %s does not know commit %s yet, the next write adds it: %s",
                self.engine.storage.location,
                commit.time,
                error,
            )

    def _validate(
        self,
        schema: pa.Schema,
        stats: Sequence[WriteStat],
        replaced: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Let the validators look at the table as it will be. Raises `ValidationFailedError`."""
        if not self.hooks.validators:
            return
        snapshot = self.engine.snapshot()  # What others published while files were written counts, too.
        after = proposed_snapshot(snapshot, schema, stats, replaced)
        storage = self.engine.storage
        with self.report.step("validate") as counted:
            views = TableView(storage, snapshot), TableView(storage, after)
            write = ProposedWrite(self.job.operation.value, *views, tuple(stats))
            run_validators(self.hooks.validators, write)
            counted["validators"] = len(self.hooks.validators)

    def _count(self, stats: Sequence[WriteStat], replaced: Mapping[str, tuple[str, ...]]) -> None:
        if self.job.operation is Operation.CLUSTER:
            self.report.rows["rewritten"] = sum(stat.num_writes for stat in stats)
        else:
            self.report.rows.update(
                inserted=sum(stat.num_inserts for stat in stats),
                updated=sum(stat.num_updates for stat in stats),
                deleted=sum(stat.num_deletes for stat in stats),
            )
        self.report.files.update(
            created=sum(stat.prev_commit is None for stat in stats),
            merged=sum(stat.prev_commit is not None for stat in stats),
            replaced=sum(map(len, replaced.values())),
            bytes=sum(stat.size_bytes for stat in stats),
        )
