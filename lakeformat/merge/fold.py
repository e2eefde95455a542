"""All that the log files of a slice say, as one version of each record (Hudi: ``deltaMerge``).

Versions are taken in the order in which they were written. What a fold leaves is itself a version of each record, so
that a history may be folded in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.gather import gather_column
from lakeformat.merge.fields import KeyRuns
from lakeformat.merge.log_records import LogDeletes, LogPart
from lakeformat.merge.order import key_codes, last_of_each, ordering_ranks
from lakeformat.merge.read_rule import ReadRule
from lakeformat.merge.versions import Versions, versions_of
from lakeformat.model.record import META_COLUMNS

__all__ = ["folded_parts", "folded_versions"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

_NOTHING: Final = LogDeletes("", pa.array([], pa.string()))
#: Fewer versions are not folded before the end.
_FEW: Final = 65_536


def folded_parts(
    parts: Iterable[LogPart],
    rule: ReadRule,
    schema: pa.Schema,
    *,
    keep: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> Versions:
    """One version of each record, of parts that are asked for one after the other.

    Memory: twice the versions that are left, and one part; of those kept elsewhere only keys and ordering values.

    Args:
        keep: given the rows that are left when as many have come again, returns them, from memory or from a file.
    """
    state, waiting, count = versions_of(_NOTHING, rule, schema), list[Versions](), 0
    for part in parts:
        waiting.append(versions_of(part, rule, schema))
        count += len(waiting[-1])
        if count > max(len(state), _FEW):
            state, waiting, count = folded_versions(Versions.joined([state, *waiting]), rule), [], 0
            state = state.of_rows(np.arange(len(state)), keep(state.rows), state.known)
    return folded_versions(Versions.joined([state, *waiting]), rule)


def folded_versions(versions: Versions, rule: ReadRule) -> Versions:
    """One version of each record.

    ==================================  ==================================================================
    after                               comes
    ==================================  ==================================================================
    anything                            commit time: what comes stays
    a record, a delete                  event time: what comes stays if its ordering value is not smaller
    anything                            an unconditional delete, which stays
    an unconditional delete             a record, a row that deletes: it stays; a delete of a delete block does not
    a record                            a record, with fields that are open in the newer one of the two: they are taken
                                        from the other
    ==================================  ==================================================================
    """
    codes = key_codes(versions.keys)
    if codes is None:
        return versions
    ranks = ordering_ranks(versions.ordering) if versions.ordering else None
    at = np.arange(len(codes)) if ranks is None else _since_unconditional(versions, codes)
    winners = last_of_each(codes, at, ranks)
    if not versions.known and not rule.by_payload:
        return versions.taken(np.sort(winners))
    late = frozenset(META_COLUMNS) if rule.by_payload else frozenset()
    return _combined(versions, codes, KeyRuns.of(codes, at, ranks), ranks, np.sort(winners), late)


def _since_unconditional(versions: Versions, codes: Codes) -> Ints:
    """Positions of the versions that count in event time: no unconditional delete makes them void."""
    at = np.arange(len(codes))
    if not versions.unconditional.any():
        return at
    end = len(codes)
    last: Ints = np.full(int(codes.max()) + 1, -1)
    voids = np.flatnonzero(versions.unconditional)
    last[codes[voids]] = voids
    since = last[codes]
    following = np.flatnonzero((since >= 0) & (at > since) & ~versions.listed)[::-1]
    first: Ints = np.full(len(last), end)
    first[codes[following]] = following
    starts = np.where((last >= 0) & (first < end), first, np.maximum(last, 0))
    ends = np.where((last >= 0) & (first == end), last, end)
    return np.flatnonzero((at >= starts[codes]) & (at <= ends[codes]))


def _combined(
    versions: Versions, codes: Codes, runs: KeyRuns, ranks: Ints | None, winners: Ints, late: Collection[str]
) -> Versions:
    """The winners, each with what the versions since the record's last delete say of its fields.

    Args:
        late: columns of the last version, whichever wins.
    """
    places, lengths = np.arange(len(runs.at)), np.diff(np.append(runs.starts, len(runs.at)))
    deleted = versions.deleted[runs.at]
    since_delete = places > np.repeat(runs.last(deleted & runs.newest_so_far), lengths)
    # A record below the delete does not count, though one above it comes later.
    start = np.repeat(runs.first(since_delete & runs.newest_so_far), lengths)
    counting = np.sort(runs.at[~deleted & (places >= start)])
    records = KeyRuns.of(codes, counting, ranks)
    by_arrival = np.argsort(records.newest())
    columns, known = [], {}
    for name in versions.rows.schema.names:
        chosen = records.latest() if name in late else records.newest()
        if name in versions.known:
            knowing = _of_versions(versions, versions.known[name])
            chosen = records.bringing(knowing)
            known[name] = knowing[chosen][by_arrival]
        columns.append(gather_column(versions.rows.column(name), versions.row[chosen[by_arrival]]))
    return versions.of_rows(winners, pa.Table.from_arrays(columns, schema=versions.rows.schema), known)


def _of_versions(versions: Versions, of_rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(versions), bool)
    held = versions.row >= 0
    found[held] = of_rows[versions.row[held]]
    return found
