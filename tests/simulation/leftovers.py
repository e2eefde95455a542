"""What a run has left behind: files that should not be there, and files that came too late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.model.files import PARTITION_MARKER
from lakeformat.model.instant import COMMIT_ACTIONS, State
from lakeformat.storage.port import HOODIE, OWN
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2
from lakeformat.transaction.order.claims import HEARTBEATS
from tests.simulation.storage import Bucket, Mutation

if TYPE_CHECKING:
    from tests.simulation.workload import Run

__all__ = ["list_late_files", "list_leftovers"]


def list_leftovers(bucket: Bucket) -> list[str]:
    """List the files that should not be there when all writers have ended: also the data files of undone commits.

    Temporary files that a late request or an undone writer has created stay, because no writer looks for them. A day
    later the next writer removes them.
    """
    stray = _find_stray_files(bucket.journal)
    found = [path for path in bucket.objects if path.startswith(_TEMPORARY) and path not in stray]
    states: dict[str, set[State]] = {}
    written: dict[str, set[str]] = {}
    for path in bucket.objects:
        folder, _, name = path.rpartition("/")
        for layout in (LAYOUT_1, LAYOUT_2):
            instant = layout.parse(name) if folder == layout.folder else None
            if instant is not None:
                states.setdefault(instant.time, set()).add(instant.state)
    found += [f"pending {time}" for time, known in states.items() if State.COMPLETED not in known]
    for change in bucket.journal:
        name = change.path.rpartition("/")[2]
        if change.data and name.endswith(_COMPLETED) and change.path.startswith(HOODIE):
            stats = decode_commit(change.data, name=name).all_stats()
            written[change.path] = {path for stat in stats for path in (stat.path, *(cdc for cdc, _ in stat.cdc_stats))}
    named = set().union(*written.values())
    data = (path for path in bucket.objects if not path.startswith(HOODIE) and not path.endswith(PARTITION_MARKER))
    return sorted([*found, *(path for path in data if path not in named)])


def list_late_files(run: Run) -> list[str]:
    """List the data files that late requests have created after their commit was undone."""
    undone = {commit.instant: commit.undone for commit in run.history.commits if commit.undone is not None}
    late = (change for change in run.bucket.journal if change.is_late and not change.path.startswith(HOODIE))
    return [
        change.path for change in late if any(time in change.path and change.time > undone[time] for time in undone)
    ]


def _find_stray_files(journal: Sequence[Mutation]) -> set[str]:
    """Return the paths of files that a late request created, and of staged files of writers whose claim was gone."""
    claims_path, stages_path = f"{OWN}/pending/", f"{OWN}/stage/"
    tokens: dict[str, str] = {}
    stray: set[str] = set()
    for change in journal:
        if change.path.startswith(claims_path):
            tokens.pop(change.path, None)
            if change.kind == "put":
                tokens[change.path] = json.loads(change.data)["lakeformat.token"]
        is_unclaimed = False
        if change.path.startswith(stages_path):
            is_unclaimed = change.path.removeprefix(stages_path).partition("/")[0] not in tokens.values()
        (stray.add if change.is_late or is_unclaimed else stray.discard)(change.path)
    return stray


#: Folders that are empty when no writer is at work.
_TEMPORARY: Final = (
    f"{HOODIE}/.temp/",
    f"{HEARTBEATS}/",
    *(f"{OWN}/{name}/" for name in ("pending", "publishing", "stage")),
)
_COMPLETED: Final = tuple(f".{action.value}" for action in COMMIT_ACTIONS)
