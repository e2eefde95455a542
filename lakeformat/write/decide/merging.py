"""Which merge rule a write follows: what the table stores, the options say, and the input has columns for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from lakeformat.config.resolve import Options, resolve
from lakeformat.errors import InvalidOptionError, SchemaMismatchError, nearest
from lakeformat.merge import MergeFunction, Merger, MergeRule
from lakeformat.model.keys import KeySettings
from lakeformat.model.table_config import MergeMode, TableConfig
from lakeformat.write.decide.merge_modes import merge_mode

__all__ = ["merge_rule", "upsert_options"]

_PARTIAL: Final = "lakeformat.write.partial.update"
_MERGER: Final = "lakeformat.write.merger"


def merge_rule(
    config: TableConfig, options: Options, keys: KeySettings, rows: pa.Schema, *, meets_stored: bool
) -> MergeRule:
    """The rule of one write.

    Args:
        rows: the input's columns.
        meets_stored: whether stored rows are looked up; without that, partial updates and mergers have no part.

    Raises:
        InvalidOptionError: rules that contradict each other, or a merger that cannot be imported.
        SchemaMismatchError: a column to update is not in the input.
    """
    mode, ordering = merge_mode(config, options), config.ordering_field
    folds = mode == MergeMode.PARTIAL_UPDATE
    fills = folds or mode == MergeMode.NON_DEFAULTS
    partial, target = options[_PARTIAL], options[_MERGER]
    if not meets_stored or not (partial or target):
        return MergeRule(ordering, folds or mode == MergeMode.EVENT_TIME, fills, folds)
    if partial and target:
        raise InvalidOptionError(f"options {_PARTIAL} and {_MERGER} contradict each other; give one")
    if target:
        merger = Merger(target, (*keys.record_fields, *(field.name for field in keys.partition_fields)))
        merger.function()
        return MergeRule(ordering, merger=merger)
    if fills:
        raise InvalidOptionError(
            f"{_PARTIAL} writes nulls, and this table's {MergeMode.PAYLOAD_OF[mode]} keeps the stored value instead; "
            "leave the option out"
        )
    return MergeRule(ordering, mode == MergeMode.EVENT_TIME, columns=_written(partial, rows, ordering))


def _written(partial: tuple[str, ...], rows: pa.Schema, ordering: str | None) -> frozenset[str]:
    """The columns to write. The ordering column is one of them, or an older row could win later."""
    known = frozenset(rows.names)
    if partial == ("*",):
        return known
    for name in partial:
        if name not in known:
            raise SchemaMismatchError(
                f"the input has no column {name!r}{nearest(name, rows.names)}, which {_PARTIAL} names; add it to the "
                "rows, or take it off the option"
            )
    if ordering is None:
        return frozenset(partial)
    return frozenset({*partial, ordering if ordering in known else ordering.partition(".")[0]})


def upsert_options(
    partial_update: bool | str | Sequence[str] | None, merger: MergeFunction | str | None
) -> Mapping[str, Any]:
    """The option values that an upsert's own arguments stand for.

    Raises:
        InvalidOptionError: a bad value.
    """
    options = resolve({"partial_update": partial_update}).values
    if merger is None:
        return options
    named = resolve({"merger": merger}).values if isinstance(merger, str) else {_MERGER: merger}
    return {**options, **named}
