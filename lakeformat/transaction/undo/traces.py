"""What an action leaves behind beside its files on the timeline, and how each trace is taken back.

Rollbacks, restores, recovery and the end of a write go through the rows of `TRACES` that belong to a `Moment`. Between
the moments they change the timeline. A new side file of an action is one more row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from lakeformat.codec.timeline_files.recovery import RollbackRequest
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.file_system_view.hashing_rings import (
    list_ring_folders,
    list_stored_rings,
    stored_paths,
    uses_consistent_hashing,
)
from lakeformat.model.files import BaseFile, LogFile, join_path
from lakeformat.model.instant import REPLACE_ACTIONS
from lakeformat.storage.port import check_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.transaction.undo.markers import remove_markers
from lakeformat.transaction.upkeep.metadata_commits import take_back_deltacommit

__all__ = ["TRACES", "Moment", "Traces", "delete_files_of", "list_files_of", "planned_files"]


class Moment(Enum):
    """When a trace is taken back. The moments of an undo come in this order."""

    #: Before the action's pending files leave the timeline: afterwards readers would take what the trace says for true.
    RECORDS = "records"
    #: When the action is invisible for good. The files cannot be brought back.
    FILES = "files"
    #: Last. As long as the claim is there, the next writer takes back what is left.
    CLAIM = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What one action has left.

    Attributes:
        time: its instant time.
        action: the action in texts of the timeline; "" if it is not known.
        files: paths of the data files that go.
        markers: paths of the markers, which go with the claim by few requests; None if the folder of markers goes.
        write_id: id of the write whose stage folder goes; None if the action has none, or if it stays.
    """

    store: TimelineStore
    time: str
    action: str = ""
    files: Sequence[str] = ()
    markers: Sequence[str] | None = None
    write_id: str | None = None

    def take_back(self, *moments: Moment) -> None:
        """Take back the traces of these moments. Traces that are not there are passed over, so it may be repeated."""
        for moment, take_back in TRACES:
            if moment in moments:
                take_back(self)


def _take_back_deltacommit(traces: Traces) -> None:
    take_back_deltacommit(traces.store, traces.time)


def _take_back_rings(traces: Traces) -> None:
    """Remove the rings of consistent hashing that the action has written, their markers first."""
    storage = traces.store.storage
    if (traces.action and traces.action not in REPLACE_ACTIONS) or not uses_consistent_hashing(storage):
        return
    for path in list_ring_folders(storage):
        stored = list_stored_rings(storage, path)
        if traces.time in stored.times:
            for ring_path in stored_paths(stored, traces.time):
                storage.delete(ring_path)


def _delete_files(traces: Traces) -> None:
    if traces.files:
        traces.store.storage.delete_all(traces.files)


def _remove_markers(traces: Traces) -> None:
    if traces.markers is None:
        remove_markers(traces.store.storage, traces.time)


def _delete_stage(traces: Traces) -> None:
    if traces.write_id is not None:
        traces.store.storage.delete_folder(stage_folder(traces.write_id))


def _release_claim(traces: Traces) -> None:
    claims.release(traces.store.storage, traces.time, traces.markers or ())


#: All traces, in the order in which they are taken back. `lakeformat.transaction.undo.log_rollback` cancels the blocks
#: in log files that stay.
TRACES: Final[tuple[tuple[Moment, Callable[[Traces], None]], ...]] = (
    (Moment.RECORDS, _take_back_deltacommit),
    (Moment.RECORDS, _take_back_rings),
    (Moment.FILES, _delete_files),
    (Moment.FILES, _remove_markers),
    (Moment.CLAIM, _delete_stage),
    (Moment.CLAIM, _release_claim),
)


def planned_files(requests: Iterable[RollbackRequest]) -> Sequence[str]:
    """Return the paths of the files that the plan of a rollback deletes.

    Only the partitions and the bare names in the plan are used: it may come from another machine and is not trusted.
    """
    return [check_path(join_path(request.partition_path, name)) for request in requests for name in request.names]


def list_files_of(
    store: TimelineStore, instant_times: Collection[str], *, logs: bool = True
) -> Sequence[BaseFile | LogFile]:
    """Return the base files and change data files whose names contain one of these instants, and the log files.

    Args:
        logs: whether to return log files.
    """
    listing = list_files(store.storage)
    files: Sequence[BaseFile | LogFile] = (*listing.bases, *listing.change_data, *(listing.logs if logs else ()))
    return [file for file in files if file.name.instant_time in instant_times]


def delete_files_of(store: TimelineStore, instant_times: Collection[str]) -> None:
    """Delete all base, log and change data files whose names contain one of these instants."""
    store.storage.delete_all([file.path for file in list_files_of(store, instant_times)])
