"""The files and properties of a table that moves to another version. Pure.

Timeline layout 2 needs completion times, which layout 1 does not store. Hudi's upgrade uses the modification times of
the timeline's files as completion times. If the table was copied, these are the times of the copy, which are too late.
In layout 2, a log file belongs to the newest base file that began before the log file's commit completed, so a
completion time that is too late would assign the log file to a newer slice. Therefore lakeformat uses the modification
time only if it is before the next instant, and otherwise the millisecond before the next instant.

Source of the properties: Hudi's ``SixToEightUpgradeHandler``, ``EightToNineUpgradeHandler`` and their inverses, and
tables that Hudi 1.2.0 has moved. Two things differ from Hudi: the types of a custom key generator and the payload class
are always kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Final

from lakeformat.model import table_config as names
from lakeformat.model.extractors import extractor_properties
from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.model.keys import KeySettings
from lakeformat.model.table_config import TableConfig
from lakeformat.model.table_properties import (
    key_generator_properties,
    layout_properties,
    merge_properties,
    payload_ordering,
)
from lakeformat.model.table_version import TABLE_VERSIONS, table_version
from lakeformat.timeline.timeline_layout import TimelineLayout

__all__ = ["FileMove", "convert_properties", "list_moves", "make_completion_times"]


@dataclass(frozen=True, slots=True)
class FileMove:
    """Move of one timeline file: its instant in the old layout and its instant in the new layout."""

    old: Instant
    new: Instant


def list_moves(
    instants: Iterable[Instant],
    to: TimelineLayout,
    *,
    clusterings: Collection[str] = (),
    completed_at: Mapping[str, str] | None = None,
) -> tuple[FileMove, ...]:
    """Return the moves of the timeline files in the order in which to make them: instant by instant, oldest first.

    The completed file of an instant is moved after its requested and inflight files.

    Args:
        instants: one instant for each timeline file.
        clusterings: times of the replacecommits that were planned as clusterings.
        completed_at: maps instant time to completion time; used only if the new layout stores completion times.
    """
    all_moves = [
        FileMove(instant, _moves_to_layout(instant, to, clusterings, completed_at or {})) for instant in instants
    ]
    return tuple(sorted(all_moves, key=lambda move: (move.old.time, move.old.state, move.old.action.value)))


def _moves_to_layout(
    instant: Instant, to: TimelineLayout, clusterings: Collection[str], ends: Mapping[str, str]
) -> Instant:
    if instant.state is State.COMPLETED:
        return replace(instant, completion_time=ends[instant.time] if to.has_completion_times else None)
    is_clustering = instant.action is Action.CLUSTERING or (
        instant.action is Action.REPLACE_COMMIT and instant.time in clusterings
    )
    return replace(instant, action=to.clustering) if is_clustering else instant


def make_completion_times(stamps: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping of instant time to completion time, which is after the instant and before the next instant.

    Args:
        stamps: maps the time of each completed instant to the modification time of its file, in the form of an instant
            time.
    """
    times = sorted(stamps)
    ends: dict[str, str] = {}
    for time, following in zip(times, [*times, None][1:], strict=True):
        first = next_instant_time(0, time, timezone.utc)
        end = max(first, stamps[time])
        if following is not None:
            end = min(end, max(first, _subtract_millisecond(following)))
        ends[time] = end
    return ends


def _subtract_millisecond(time: str) -> str:
    """Return the instant time one millisecond before ``time``."""
    moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    moment += timedelta(milliseconds=int(time[14:] or 0) - 1)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


#: Properties whose form differs between table versions. They are written for the new version, not copied.
_REWRITTEN: Final = frozenset(
    {
        names.PAYLOAD,
        names.LEGACY_PAYLOAD,
        names.MERGE_MODE,
        names.MERGE_STRATEGY,
        names.PARTIAL_UPDATE_MODE,
        names.KEY_GENERATOR,
        names.KEY_GENERATOR_1X,
        names.ORDERING,
        names.ORDERING_1X,
        names.TYPED_FIELDS,
    }
)
#: Properties that are copied if the table has them: its initial version, and folders that do not move.
_KEPT: Final = frozenset({names.INITIAL_VERSION, names.TIMELINE_PATH, names.HISTORY_PATH, names.ARCHIVE_FOLDER})


def convert_properties(config: TableConfig, to: int, keys: KeySettings) -> dict[str, str]:
    """Return the properties of the same table in another version.

    Args:
        config: the table's present configuration.
        to: a number of `TABLE_VERSIONS`.
        keys: how the table's keys are generated, with the field types of a custom key generator.

    Raises:
        UnsupportedTableError: the table's merge mode or payload class is not known.
    """
    payload = config.get(names.PAYLOAD) or config.get(names.LEGACY_PAYLOAD)
    layout = layout_properties(to)
    # A table of version 8 or 9 has an initial version, which stays.
    layout[names.INITIAL_VERSION] = str(config.version)
    mode = config.merge_mode
    ordering = names.ORDERING_1X if table_version(to).takes_several_ordering_fields else names.ORDERING
    fields_by_time = payload_ordering(to, mode) or config.ordering_fields
    rewritten = {*_REWRITTEN, *merge_properties(max(TABLE_VERSIONS), mode)}
    values: Mapping[str, str] = {
        **{key: text for key, text in config.values.items() if key not in rewritten},
        **{key: text for key, text in layout.items() if key not in _KEPT or key not in config.values},
        **merge_properties(to, mode, payload),
        **key_generator_properties(to, keys.kind, keys.partition_fields),
        **({ordering: ",".join(fields_by_time)} if fields_by_time else {}),
    }
    extractor = extractor_properties(
        to, len(keys.partition_fields), hive_style=config.hive_style, slash_dates=config.slash_dates
    )
    return {**extractor, **values}
