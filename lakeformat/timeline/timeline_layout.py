"""The two layouts of a timeline: the folder and names of its files, and the encoding of commits.

Layout 1 (table versions up to 6) has files ``<time>.<action>[.<state>]`` and JSON commits in ``.hoodie``. Layout 2
(from table version 8 on) has files ``<time>_<completion time>.<action>`` and Avro commits in ``.hoodie/timeline``. The
archives differ too. Source: Hudi's ``InstantFileNameParserV1`` and ``V2``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from lakeformat.codec.timeline_files.commit import encode_commit_avro as encode_avro
from lakeformat.codec.timeline_files.commit import encode_commit_json as encode_json
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import COMPLETES_AS, Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import HOODIE, check_path

__all__ = ["LAYOUTS", "LAYOUT_1", "LAYOUT_2", "TimelineLayout", "layout_of"]

_NAME: Final = re.compile(
    r"(?P<time>\d{14}|\d{17})(?:_(?P<completion>\d{14}|\d{17}))?\."
    r"(?:(?P<bare>inflight)|(?P<action>[a-z]+)(?:\.(?P<state>requested|inflight))?)"
)


@dataclass(frozen=True, slots=True)
class TimelineLayout:
    """The rules by which instants are stored: folder, file names and encoding of commits.

    Attributes:
        version: ``hoodie.timeline.layout.version``.
        folder: Folder of the active instants' files, relative to the table.
        has_completion_times: Whether names of completed files contain the completion time, and commits are Avro.
        archive_name: Text that the names of archive files contain. Each archiving run creates such a file.
    """

    version: int
    folder: str
    has_completion_times: bool
    archive_name: str

    def parse(self, name: str) -> Instant | None:
        """Parse the name of an instant's file; return None for other files.

        >>> LAYOUT_1.parse("20251120083000123.inflight").action.value
        'commit'
        >>> LAYOUT_2.parse("20251120083000123_20251120083004567.commit").completion_time
        '20251120083004567'
        """
        return _parse(name, self.has_completion_times)

    def file_name(self, instant: Instant) -> str:
        """Return the name of an instant's file, with ``*`` for an unknown completion time.

        >>> LAYOUT_1.file_name(LAYOUT_1.parse("20251120083000123.commit.requested"))
        '20251120083000123.commit.requested'
        """
        if instant.state is State.COMPLETED:
            end = f"_{instant.completion_time or '*'}" if self.has_completion_times else ""
            return f"{instant.time}{end}.{instant.action.value}"
        if instant.action is Action.COMMIT and instant.state is State.INFLIGHT:
            return f"{instant.time}.inflight"
        return f"{instant.time}.{instant.action.value}.{instant.state.name.lower()}"

    def path(self, instant: Instant) -> str:
        """Return the path of the instant's file, relative to the table."""
        return f"{self.folder}/{self.file_name(instant)}"

    @property
    def clustering(self) -> Action:
        """Return the action of a pending clustering: ``replacecommit`` in layout 1, ``clustering`` in layout 2."""
        return Action.CLUSTERING if self.has_completion_times else Action.REPLACE_COMMIT

    def list_requests(self, instant: Instant) -> tuple[Instant, ...]:
        """Return the requested instants that may be the first state of this instant.

        A completed commit may have begun as a compaction or clustering; then those requests are returned, too.
        """
        own = instant.at(State.REQUESTED)
        if instant.state is not State.COMPLETED:
            return (own,)
        plans = (plan for plan, done in COMPLETES_AS.items() if done is instant.action)
        return (own, *(Instant(instant.time, plan, State.REQUESTED) for plan in plans))

    def encode_commit(self, metadata: CommitMetadata, *, replace: bool = False) -> bytes:
        """Return the contents of a commit's inflight or completed file.

        Args:
            replace: True for the completed file of a replacecommit.
        """
        return (encode_avro if self.has_completion_times else encode_json)(metadata, replace=replace)


@lru_cache(maxsize=1 << 16)  # Cached: a write lists the timeline several times, and most names stay the same.
def _parse(name: str, has_completion_times: bool) -> Instant | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    time, completion, bare, action, state = match.groups()
    is_completed = not bare and not state
    if bool(completion) != (has_completion_times and is_completed):
        return None
    if bare:
        return Instant(time, Action.COMMIT, State.INFLIGHT)
    try:
        return Instant(time, Action(action), State[state.upper()] if state else State.COMPLETED, completion)
    except ValueError:
        return None


LAYOUT_1: Final = TimelineLayout(1, HOODIE, has_completion_times=False, archive_name=".archive")
LAYOUT_2: Final = TimelineLayout(2, f"{HOODIE}/timeline", has_completion_times=True, archive_name="manifest_")
LAYOUTS: Final[Mapping[int, TimelineLayout]] = {layout.version: layout for layout in (LAYOUT_1, LAYOUT_2)}


def layout_of(config: TableConfig) -> TimelineLayout | None:
    """Return the layout whose version is in a table's properties; None if the version is not supported.

    Raises:
        CorruptTableError: The timeline folder in the properties lies outside the table.
    """
    layout = LAYOUTS.get(config.layout_version)
    return layout and replace(layout, folder=check_path(config.timeline_folder))
