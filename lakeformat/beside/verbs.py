"""Sync of the metadata of other formats when it is asked for, and after each commit."""

from __future__ import annotations

import logging
from typing import Any, Final

from lakeformat.beside.session import FaceSync, SyncSession
from lakeformat.config.beside_options import FORMATS
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, LakeformatError, SyncError, nearest
from lakeformat.file_system_view.context import TableContext
from lakeformat.public import public
from lakeformat.transaction.result import WriteResult

__all__ = ["Syncing", "sync_after_commit", "sync_result"]

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
            to: ``delta``: the folder ``_delta_log`` in the table.
            replace: whether metadata that another program has written, or that is damaged, is deleted first.

        Returns:
            The version that shows the table, and the numbers of files that were added and removed.

        Raises:
            InvalidOptionError: the format is not known.
            UnsupportedTableError: the format's readers would not read the table's rows from its base files.
            SyncError: another program wrote the metadata.
            CorruptTableError: a file of the metadata or of the table is damaged.
        """
        if to not in FORMATS:
            raise InvalidOptionError(
                f"sync to {to!r} is not supported{nearest(str(to), FORMATS)}; there is {', '.join(FORMATS)}"
            )
        return SyncSession(self.context).run(replace=replace)


def sync_result(result: WriteResult, context: TableContext, options: Options) -> WriteResult:
    """Sync the formats that the options name, after a write. Return its result, with a step ``sync`` for each format.

    Raises:
        SyncError: a sync has failed, and the options ask for an error.
    """
    return result.with_steps(sync_after_commit(context, options, result.instant_time))


def sync_after_commit(context: TableContext, options: Options, instant_time: str) -> list[dict[str, Any]]:
    """Sync the formats that the options name, after a change of the table. Return a step of a report for each.

    If a sync fails, log a warning, and put the error into the step.

    Raises:
        SyncError: a sync has failed, and the options ask for an error.
    """
    steps: list[dict[str, Any]] = []
    for name in options.beside.formats:
        start = context.clock.seconds()
        try:
            steps.append(SyncSession(context).run().as_step())
        except Exception as error:  # The commit is visible: its writer must not believe that it failed.
            text = str(error) if isinstance(error, LakeformatError) else f"{type(error).__name__}: {error}"
            if options.beside.fails:
                raise SyncError(
                    f"commit {instant_time} of {context.storage.location} IS visible, only {name} does not show it: "
                    f"{text}; do not write the rows again"
                ) from error
            _LOG.warning(
                "commit %s of %s is complete, but %s does not show it: %s",
                instant_time,
                context.storage.location,
                name,
                text,
            )
            seconds = round(context.clock.seconds() - start, 4)
            steps.append({"step": "sync", "seconds": seconds, "format": name, "error": text})
    return steps
