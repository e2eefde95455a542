"""The fold: the merge of all versions of a record in a slice's log files into one version (Hudi: ``deltaMerge``).

Versions are folded in the order in which they were written. The result of a fold can be folded with later versions, so
log files are folded one block after the other, and not all of them are in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.gather import combine_table, gather_column, keep_rows
from lakeformat.merge.fields import KeyRuns
from lakeformat.merge.order import key_codes, last_of_each, ordering_ranks
from lakeformat.merge.rules import ReadRule
from lakeformat.merge.versions import LogDeletes, LogPart, Versions, make_versions
from lakeformat.model.record import META_COLUMNS

__all__ = ["fold_parts", "fold_versions"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32] | npt.NDArray[np.int64]

_NO_DELETES: Final = LogDeletes("", pa.array([], pa.string()))
#: Versions are folded if more than this number have been collected since the previous fold, and also more than the
#: previous fold returned. Otherwise a large result would be copied again and again for a few new versions.
_FEW: Final = 65_536
#: Versions are also folded, however few they are, if their rows have more than this number of bytes, and more than
#: ``1 / _SHARE`` of the bytes of the rows that the previous fold returned.
_FEW_BYTES: Final = 32 << 20
#: See `_FEW_BYTES`. A greater number limits the memory of rows that are not folded yet; a smaller number makes folds
#: rarer, each of which copies the rows that the previous fold returned.
_SHARE: Final = 4


def fold_parts(
    parts: Iterable[LogPart],
    rule: ReadRule,
    schema: pa.Schema,
    *,
    stored: pa.Schema | None = None,
    keep: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    base_rows: int = 0,
) -> Versions:
    """Fold the contents of log blocks into one version of each record.

    Memory:

    - The rows of the folded versions.
    - Rows that are not folded yet: a quarter of the bytes of the folded rows, but at least 32 MB; and one block.
    - A second copy of one column; of a column with large values, a copy of one chunk. If fields of several versions are
      combined, a second copy of all columns.

    Args:
        parts: the contents of the blocks, in the order in which they were written.
        rule: the table's read rule.
        schema: the columns to keep, with the table's types.
        stored: the columns with the types of the files; ``schema`` by default.
        keep: called with the remaining rows after each fold. Returns the same rows; it may store them in a file and
            return them mapped from it.
        base_rows: row count of the base file to which positions refer; 0 to match versions by key.
    """
    held = [
        make_versions(_NO_DELETES, rule, schema, stored)
    ]  # This list starts with the folded versions; versions not folded yet follow.
    count = size = rows = size_folded = 0
    for part in parts:
        held.append(make_versions(part, rule, schema, stored))
        del part  # Frees the block's memory before the next block is decoded.
        count, size = count + len(held[-1]), size + held[-1].rows.nbytes
        if count > max(rows, _FEW) or size > max(size_folded // _SHARE, _FEW_BYTES):
            held.append(_fold_held(held, rule, base_rows, keep))
            rows, size_folded, count, size = len(held[0]), held[0].rows.nbytes, 0, 0
    return _fold_held(held, rule, base_rows, keep)


def _fold_held(held: list[Versions], rule: ReadRule, base_rows: int, keep: Callable[[pa.Table], pa.Table]) -> Versions:
    """Fold the versions in the list into one `Versions`, and clear the list to free memory."""
    versions = Versions.join(held)
    held.clear()
    if versions.known or rule.takes_last_meta:
        folded = fold_versions(versions, rule, base_rows)
        return replace(folded, rows=keep(combine_table(folded.rows)))
    winners = _find_winners(versions, base_rows)
    taken = None if winners is None else versions.row[winners]
    schema, columns = versions.rows.schema, versions.rows.columns
    versions = replace(versions, rows=schema.empty_table())
    arrays = keep_rows(columns, None if taken is None else taken[taken >= 0])
    rows = pa.Table.from_arrays(arrays, schema=schema)
    return replace(versions, rows=keep(rows)) if winners is None else versions.with_rows(winners, keep(rows), {})


def fold_versions(versions: Versions, rule: ReadRule, base_rows: int = 0) -> Versions:
    """Fold the versions of records into one version of each record.

    Args:
        versions: the versions, in the order in which they were written.
        base_rows: row count of the base file to which positions refer; 0 to match versions by key.

    ==================================  ==================================================================
    earlier version                     later version and result
    ==================================  ==================================================================
    any                                 commit time: the later version wins
    a record, a delete                  event time: the later version wins if its ordering value is not smaller
    any                                 an unconditional delete wins
    an unconditional delete             any row of a data block wins, even one that marks a delete; a delete of a
                                        delete block does not win
    a record                            a record: fields that the newer of the two does not set are copied from the
                                        older
    ==================================  ==================================================================
    """
    codes = _record_codes(versions, base_rows)
    if codes is None:
        return versions
    ranks, positions, winners = _rank(versions, codes)
    if not (versions.known or rule.takes_last_meta):
        return versions.take_versions(np.sort(winners))
    records = KeyRuns.group(codes, KeyRuns.group(codes, positions, ranks).find_contributors(versions.deleted), ranks)
    return _combine_fields(versions, rule, records, np.sort(winners))


def _find_winners(versions: Versions, base_rows: int) -> Ints | None:
    """Return the ascending positions of the version that wins for each record; None if that is every version.

    Use it only for rules that do not combine fields of several versions.
    """
    codes = _record_codes(versions, base_rows)
    return None if codes is None else np.sort(_rank(versions, codes)[2])


def _rank(versions: Versions, codes: Codes) -> tuple[Ints | None, Ints, Ints]:
    """Rank the versions of records by their ordering values.

    Returns:
        the rank of each version (None without ordering fields), the positions of the versions that no unconditional
        delete removes, and for each code the position of the version that wins.
    """
    ranks = ordering_ranks(versions.ordering) if versions.ordering else None
    positions = np.arange(len(codes)) if ranks is None else _find_effective_versions(versions, codes)
    return ranks, positions, last_of_each(codes, positions, ranks)


def _record_codes(versions: Versions, base_rows: int) -> Codes | None:
    """Return a code for each version, equal for versions of the same record; None if no record has several.

    Records are identified by their base-file row number if every version has a valid one, else by their key.
    """
    positions = versions.position
    if not base_rows or positions.min(initial=0) < 0 or positions.max(initial=0) >= base_rows:
        return key_codes(versions.keys)
    # A stable sort is fast on ascending runs, such as the rows of a block.
    order = np.argsort(positions, kind="stable")
    differs = np.diff(positions[order], prepend=-1) > 0
    if differs.all():
        return None
    codes = np.empty(len(positions), np.int64)
    codes[order] = np.cumsum(differs) - 1
    return codes


def _find_effective_versions(versions: Versions, codes: Codes) -> Ints:
    """Return the positions of the versions that no unconditional delete removes, by the event-time rule."""
    positions = np.arange(len(codes))
    if not versions.unconditional.any():
        return positions
    end = len(codes)
    last: Ints = np.full(int(codes.max()) + 1, -1)
    deletes = np.flatnonzero(versions.unconditional)
    last[codes[deletes]] = deletes
    since = last[codes]
    following = np.flatnonzero((since >= 0) & (positions > since) & ~versions.in_delete_block)[::-1]
    first: Ints = np.full(len(last), end)
    first[codes[following]] = following
    starts = np.where((last >= 0) & (first < end), first, np.maximum(last, 0))
    ends = np.where((last >= 0) & (first == end), last, end)
    return np.flatnonzero((positions >= starts[codes]) & (positions <= ends[codes]))


def _combine_fields(versions: Versions, rule: ReadRule, records: KeyRuns, winners: Ints) -> Versions:
    """Return the winners. A field that a winner does not set is copied from another record of the same key."""
    newest, latest = records.newest(), records.latest()
    by_arrival = np.argsort(newest)
    columns, set_cells = [], {}
    for name in versions.rows.schema.names:
        chosen = latest if rule.takes_last_meta and name in META_COLUMNS else newest
        if name in versions.known:
            knowing = _spread_flags(versions, versions.known[name])
            chosen = records.choose_field_rows(knowing)
            set_cells[name] = knowing[chosen][by_arrival]
        columns.append(gather_column(versions.rows.column(name), versions.row[chosen[by_arrival]]))
    return versions.with_rows(winners, pa.Table.from_arrays(columns, schema=versions.rows.schema), set_cells)


def _spread_flags(versions: Versions, of_rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    flags = np.zeros(len(versions), bool)
    held = versions.row >= 0
    flags[held] = of_rows[versions.row[held]]
    return flags
