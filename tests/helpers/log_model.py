"""A model of merging a slice in plain Python: record by record, version by version, as Hudi 1.2 does.

Hudi: ``BufferedRecordMergerFactory``, ``RecordContext.isDeleteRecord``, ``PartialUpdateHandler``, and for partial
blocks ``SparkRecordMergingUtils``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakeformat.merge import ReadRule
from lakeformat.model.merge_settings import PartialUpdate

UNAVAILABLE = "?"

#: A row as a dict. A missing key is a column that the row's block does not have.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Block:
    """A data block of rows, or a delete block of keys and their ordering values."""

    rows: Sequence[Row] = ()
    is_partial: bool = False
    deletes: Sequence[tuple[str, tuple[Any, ...]]] | None = None


@dataclass
class Record:
    """Hudi's ``BufferedRecord``. The row of a delete is empty."""

    ordering: tuple[Any, ...]
    row: dict[str, Any] = field(default_factory=dict)
    deleted: bool = False
    forced: bool = False


def rank(ordering: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a sort key of the values: null comes before all others, NaN after all others."""
    return tuple(
        (0, 0) if v is None else (2, 0) if isinstance(v, float) and math.isnan(v) else (1, v) for v in ordering
    )


def greater(left: Record, right: Record) -> bool:
    return rank(left.ordering) > rank(right.ordering)


def is_delete(row: Row, rule: ReadRule) -> bool:
    marked = bool(rule.delete_field) and row.get(rule.delete_field) == rule.delete_marker
    return bool(row.get("_hoodie_is_deleted")) or row.get("_hoodie_operation") in {"D", "-D", "-U"} or marked


def make_delete(ordering: tuple[Any, ...], rule: ReadRule) -> Record:
    """Return a delete. It always wins if it has no ordering value, or if the payload class says so."""
    return Record(ordering, deleted=True, forced=rule.by_payload or all(value is None for value in ordering))


def combine_records(high: Record, low: Record, rule: ReadRule) -> Record:
    """Return the winner ``high``, with its missing values taken from the loser."""
    if high.deleted or low.deleted:
        return high
    row = dict(high.row)
    for name, value in low.row.items():
        if (
            name not in row
            or (rule.partial is PartialUpdate.IGNORE_DEFAULTS and row[name] is None)
            or (rule.partial is PartialUpdate.FILL_UNAVAILABLE and row[name] == UNAVAILABLE)
        ):
            row[name] = value
    return Record(high.ordering, row)


def merge_versions(old: Record, new: Record, rule: ReadRule) -> Record:
    """Merge two versions. ``new`` was written later."""
    if not rule.ordering or new.forced or old.forced or not greater(old, new):
        return combine_records(new, old, rule)
    result = combine_records(old, new, rule)
    if rule.by_payload:
        result.row["_hoodie_commit_time"] = new.row["_hoodie_commit_time"]
    return result


def merge_slice(base: Sequence[Row], blocks: Sequence[Block], rule: ReadRule, columns: Sequence[str]) -> list[Row]:
    """Return the merged rows: those of the base file in their order, then those of log files alone.

    The rows of log files alone are in the order of their winners.
    """
    state: dict[str, Record] = {}
    for block in blocks:
        for row in block.rows:
            ordering = tuple(row.get(name) for name in rule.ordering)
            whole = {} if block.is_partial else dict.fromkeys(columns)
            new = make_delete(ordering, rule) if is_delete(row, rule) else Record(ordering, {**whole, **row})
            put(state, row["_hoodie_record_key"], new, rule)
        for key, values in block.deletes or ():
            new = make_delete(values, rule)
            old = state.get(key)
            if rule.ordering and not new.forced and old is not None and (old.forced or greater(old, new)):
                continue
            state.pop(key, None)
            state[key] = new
    rows, met = [], set()
    for row in base:
        key = row["_hoodie_record_key"]
        if key in state:
            met.add(key)
            stored = Record(tuple(row[name] for name in rule.ordering), dict(row))
            # A record of the log meets the row of the base file like any later version, because no delete lies between
            # them.
            result = merge_versions(stored, state[key], rule)
            if result.deleted:
                continue
            rows.append({name: result.row.get(name) for name in columns})
        else:
            rows.append({name: row.get(name) for name in columns})
    left = [record.row for key, record in state.items() if key not in met and not record.deleted]
    return rows + [{name: row.get(name) for name in columns} for row in left]


def put(state: dict[str, Record], key: str, new: Record, rule: ReadRule) -> None:
    old = state.get(key)
    if old is None:
        state[key] = new
        return
    result = merge_versions(old, new, rule)
    if not rule.ordering or old.forced or new.forced or not greater(old, new):
        state.pop(key)
    state[key] = result
