"""What all scans of one relation of Spark (a DataFrame, a view) share: one snapshot, and what they have pushed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import DataSourceReader

from lakeformat.config.read_options import INCREMENTAL, QUERY_TYPE
from lakeformat.config.resolve import Options
from lakeformat.model.instant import parse_as_of
from lakeformat.read.incremental import changed_snapshot
from lakeformat.read.query import asked_snapshot, of_query_type, warn_before_first
from lakeformat.spark.guarded import is_guarded, unmarked
from lakeformat.spark.host import asked_engine
from lakeformat.spark.pushed import new_log
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["Relation", "keeps_plans_by_scan", "new_relation", "open_snapshot"]

#: Before every commit.
_NEVER: Final = "0" * 17


@dataclass(frozen=True)
class Relation:
    """Made once, when Spark makes the relation.

    Attributes:
        as_of: the greatest instant time that it knew.
        unseen: times of the commits that were pending then and may have completed since.
        pushed: where its scans' filters are kept (`lakeformat.spark.pushed`); None if files are not skipped by them.
    """

    as_of: str
    unseen: frozenset[str]
    pushed: str | None


def keeps_plans_by_scan() -> bool:
    """Whether Spark gives each scan the plan made for its own filters: so since it pushes limits."""
    return hasattr(DataSourceReader, "pushLimit")


def new_relation(options: Mapping[str, str]) -> Relation | None:
    """The table as it stands now; None if it cannot be opened, which the first scan then says."""
    try:
        engine, resolved = asked_engine(unmarked(options), reads=True)
        timeline = engine.store.load()
        as_of = resolved["as.of.instant"]
        asked = None if as_of is None else parse_as_of(as_of, engine.store.config().zone)
        if asked is not None:
            warn_before_first(engine.storage.location, timeline, asked)
    except Exception:
        return None
    newest = timeline.newest_time or _NEVER
    shared = is_guarded(options) and hasattr(DataSourceReader, "pushFilters") and not keeps_plans_by_scan()
    return Relation(
        min(asked or newest, newest),
        frozenset(instant.time for instant in timeline.pending_writes),
        new_log() if shared else None,
    )


def open_snapshot(options: Mapping[str, str], relation: Relation | None) -> tuple[Engine, Snapshot, Options]:
    """The relation's snapshot, or that of now."""
    engine, resolved = asked_engine(unmarked(options), reads=True)
    if relation is None:
        return engine, asked_snapshot(engine, resolved), resolved
    if resolved[QUERY_TYPE] == INCREMENTAL:
        changed = changed_snapshot(engine, resolved, as_of=relation.as_of, unseen=relation.unseen)
        return engine, changed, resolved
    pinned = engine.snapshot(relation.as_of, unseen=relation.unseen)
    return engine, of_query_type(pinned, resolved), resolved
