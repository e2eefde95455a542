"""Sync of the metadata of other formats when it is asked for, and after each commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from lakeformat.beside.delta_face import DeltaFace
from lakeformat.beside.face import HINT, FaceFormat
from lakeformat.beside.session import FaceSync, Lag, SyncSession
from lakeformat.beside.shown import UncompactedError
from lakeformat.config.beside_options import FORMATS, BesideOptions
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, LakeformatError, SyncError, nearest
from lakeformat.extras import install_line
from lakeformat.file_system_view.context import TableContext
from lakeformat.public import public
from lakeformat.transaction.commit.result import WriteResult

__all__ = ["Syncing", "find_lags", "open_session", "sync_after_commit", "sync_result"]

_LOG: Final = logging.getLogger("lakeformat.beside")


@public
class Syncing:
    """The method that brings metadata of another format up to date. Subclasses set the attributes."""

    context: TableContext
    options: Options

    def sync(self, to: str, *, replace: bool = False) -> FaceSync:
        """Bring the metadata of another format beside the table up to date, so that its readers can read the table.

        Writes do the same if ``lakeformat.beside`` names the format. No row is copied: the metadata names the table's
        base files. A merge-on-read table must be compacted first.

        Args:
            to: ``delta``: the folder ``_delta_log`` in the table; ``iceberg``: the folder ``metadata``, or the table of
                a catalog that ``lakeformat.beside.iceberg.catalog`` and ``lakeformat.beside.iceberg.table`` name.
            replace: whether metadata that another program has written, or that is damaged, is deleted first.

        Returns:
            The version that shows the table, and the numbers of files that were added and removed.

        Raises:
            InvalidOptionError: the format is not known, or its package is missing.
            UnsupportedTableError: the format's readers would not read the table's rows from its base files.
            SyncError: another program wrote the metadata, or the catalog cannot be reached.
            CorruptTableError: a file of the metadata or of the table is damaged.
        """
        if to not in FORMATS:
            raise InvalidOptionError(
                f"sync to {to!r} is not supported{nearest(str(to), FORMATS)}; there is {', '.join(FORMATS)}"
            )
        return open_session(self.context, self.options.beside, to).run(replace=replace)


def open_session(context: TableContext, options: BesideOptions, name: str) -> SyncSession:
    """Return the session that syncs a format.

    Raises:
        InvalidOptionError: the format's package is missing, or the options do not name a table of the catalog.
    """
    form: FaceFormat
    if name == "delta":
        form = DeltaFace(context)
    else:
        try:
            form = import_module("lakeformat.beside.iceberg_face").IcebergFace(context, options)
        except ImportError:
            raise InvalidOptionError(f"Iceberg's metadata is written by pyiceberg; {install_line(name)}") from None
    return SyncSession(context, form)


def find_lags(context: TableContext, options: BesideOptions) -> Iterator[tuple[str, Lag]]:
    """Yield each format whose metadata beside the table is behind it, or damaged, and how far."""
    for name in FORMATS:
        if name == "iceberg" and not options.iceberg_catalog and context.storage.info(HINT) is None:
            continue
        try:
            lag = open_session(context, options, name).find_lag()
        except InvalidOptionError as error:
            lag = Lag(str(error), can_follow=False)
        if lag is not None:
            yield name, lag


def sync_result(result: WriteResult, context: TableContext, options: Options) -> WriteResult:
    """Sync the formats that the options name, after a write. Return its result, with a step ``sync`` for each format.

    Raises:
        SyncError: a sync has failed, and the options ask for an error.
    """
    return result.with_steps(sync_after_commit(context, options, result.instant_time))


def sync_after_commit(context: TableContext, options: Options, instant_time: str) -> list[dict[str, Any]]:
    """Sync the formats that the options name, after a change of the table. Return a step of a report for each.

    If a sync fails, log a warning, and put the error into the step. If a table has log files, the step only says that
    the format waits for a compaction.

    Raises:
        SyncError: a sync has failed, and the options ask for an error.
    """
    steps: list[dict[str, Any]] = []
    for name in options.beside.formats:
        start = context.clock.seconds()
        try:
            steps.append(open_session(context, options.beside, name).run().as_step())
        except Exception as error:  # The commit is visible: its writer must not believe that it failed.
            text = str(error) if isinstance(error, LakeformatError) else f"{type(error).__name__}: {error}"
            if options.beside.fails:
                raise SyncError(
                    f"commit {instant_time} of {context.storage.location} IS visible, only {name} does not show it: "
                    f"{text}; do not write the rows again"
                ) from error
            waits = isinstance(error, UncompactedError)
            if not waits:
                where = context.storage.location
                _LOG.warning(
                    "commit %s of %s is complete, but %s does not show it: %s", instant_time, where, name, text
                )
            seconds = round(context.clock.seconds() - start, 4)
            steps.append({"step": "sync", "seconds": seconds, "format": name, "skipped" if waits else "error": text})
    return steps
