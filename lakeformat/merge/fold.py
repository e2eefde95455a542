"""All that the log files of a slice say, as one version of each record (Hudi: ``deltaMerge``).

Versions are taken in the order in which they were written. What a fold leaves is itself a version of each record, so
that a history may be folded in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.codec.gather import gather_column, keep_rows, one_chunk
from lakeformat.merge.fields import KeyRuns
from lakeformat.merge.log_records import LogDeletes, LogPart
from lakeformat.merge.order import key_codes, last_of_each, ordering_ranks
from lakeformat.merge.read_rule import ReadRule
from lakeformat.merge.versions import Versions, versions_of
from lakeformat.model.record import META_COLUMNS

__all__ = ["folded_parts", "folded_versions"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32] | npt.NDArray[np.int64]

_NOTHING: Final = LogDeletes("", pa.array([], pa.string()))
#: Fewer versions are not folded before the end, unless they take many bytes.
_FEW: Final = 65_536
#: Bytes of rows that are not folded before the end, and the share of what is there already from which more are.
_FEW_BYTES: Final = 32 << 20
_SHARE: Final = 4


def folded_parts(
    parts: Iterable[LogPart],
    rule: ReadRule,
    schema: pa.Schema,
    *,
    stored: pa.Schema | None = None,
    keep: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    base_rows: int = 0,
) -> Versions:
    """One version of each record, of parts that are asked for one after the other.

    Memory: the rows of the versions that are left and a quarter of them, or 32 MB, one part, and a column a second time
    (of one with large values, one chunk of it; where fields come from several versions, all columns).

    Args:
        schema, stored: as `versions_of` takes them.
        keep: given the rows that are left, now and then and at the end, returns them, from memory or from a file.
        base_rows: as `folded_versions` takes it.
    """
    held = [versions_of(_NOTHING, rule, schema, stored)]  # What is folded already, and parts behind it.
    count = size = rows = size_folded = 0
    for part in parts:
        held.append(versions_of(part, rule, schema, stored))
        del part  # Or it would be there while the next one is decoded.
        count, size = count + len(held[-1]), size + held[-1].rows.nbytes
        if count > max(rows, _FEW) or size > max(size_folded // _SHARE, _FEW_BYTES):
            held.append(_folded(held, rule, base_rows, keep))
            rows, size_folded, count, size = len(held[0]), held[0].rows.nbytes, 0, 0
    return _folded(held, rule, base_rows, keep)


def _folded(held: list[Versions], rule: ReadRule, base_rows: int, keep: Callable[[pa.Table], pa.Table]) -> Versions:
    """Fold the versions, and empty the list."""
    versions = Versions.joined(held)
    held.clear()
    if versions.known or rule.by_payload:
        folded = folded_versions(versions, rule, base_rows)
        return replace(folded, rows=keep(one_chunk(folded.rows)))
    at = _winners(versions, base_rows)
    taken = None if at is None else versions.row[at]
    schema, columns = versions.rows.schema, versions.rows.columns
    versions = replace(versions, rows=schema.empty_table())
    arrays = keep_rows(columns, None if taken is None else taken[taken >= 0])
    rows = pa.Table.from_arrays(arrays, schema=schema)
    return replace(versions, rows=keep(rows)) if at is None else versions.of_rows(at, keep(rows), {})


def folded_versions(versions: Versions, rule: ReadRule, base_rows: int = 0) -> Versions:
    """One version of each record.

    Args:
        base_rows: rows of the base file to which positions point; 0 where nobody looks at positions.

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
    codes = _record_codes(versions, base_rows)
    if codes is None:
        return versions
    ranks, at, winners = _ranked(versions, codes)
    if not (versions.known or rule.by_payload):
        return versions.taken(np.sort(winners))
    records = KeyRuns.of(codes, _since_deletes(versions, KeyRuns.of(codes, at, ranks)), ranks)
    return _combined(versions, rule, records, np.sort(winners))


def _winners(versions: Versions, base_rows: int) -> Ints | None:
    """Find the versions that are left where no field is taken from another one, ascending; None: all of them."""
    codes = _record_codes(versions, base_rows)
    return None if codes is None else np.sort(_ranked(versions, codes)[2])


def _ranked(versions: Versions, codes: Codes) -> tuple[Ints | None, Ints, Ints]:
    """Rank the versions by their ordering values; return these, the versions that count, and the winners of them."""
    ranks = ordering_ranks(versions.ordering) if versions.ordering else None
    at = np.arange(len(codes)) if ranks is None else _since_unconditional(versions, codes)
    return ranks, at, last_of_each(codes, at, ranks)


def _record_codes(versions: Versions, base_rows: int) -> Codes | None:
    """Equal where the record is: by its row in the base file where all say it, by its key else; None: all differ."""
    at = versions.position
    if not base_rows or at.min(initial=0) < 0 or at.max(initial=0) >= base_rows:
        return key_codes(versions.keys)
    order = np.argsort(at, kind="stable")  # Runs that ascend, as blocks are, cost one pass.
    differs = np.diff(at[order], prepend=-1) > 0
    if differs.all():
        return None
    codes = np.empty(len(at), np.int64)
    codes[order] = np.cumsum(differs) - 1
    return codes


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


def _since_deletes(versions: Versions, runs: KeyRuns) -> Ints:
    """Positions, ascending, of the records that have a part in what is left: those since the last delete that won."""
    places, deleted = np.arange(len(runs.at)), versions.deleted[runs.at]
    since_delete = places > runs.last(deleted & runs.newest_so_far)[runs.run]
    # A record below the delete has none, though one above it comes later.
    start = runs.first(since_delete & runs.newest_so_far)[runs.run]
    return np.sort(runs.at[~deleted & (places >= start)])


def _combined(versions: Versions, rule: ReadRule, records: KeyRuns, winners: Ints) -> Versions:
    """The winners, each with what the other records of its key say of its fields."""
    newest, latest = records.newest(), records.latest()
    by_arrival = np.argsort(newest)
    columns, known = [], {}
    for name in versions.rows.schema.names:
        chosen = latest if rule.by_payload and name in META_COLUMNS else newest
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
