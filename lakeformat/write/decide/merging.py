"""The merge rule of a write, from the table's config, the options and the input's columns."""

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
    """Return the merge rule of one write.

    Args:
        rows: the input's schema.
        meets_stored: whether the write looks up stored rows. If not, partial updates and mergers are not used.

    Raises:
        InvalidOptionError: if rules contradict each other, or if a merger cannot be imported.
        SchemaMismatchError: if a column to update is not in the input.
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
    return MergeRule(ordering, mode == MergeMode.EVENT_TIME, columns=_columns_to_write(partial, rows, ordering))


def _columns_to_write(partial: tuple[str, ...], rows: pa.Schema, ordering: str | None) -> frozenset[str]:
    """Return the columns to write. They include the ordering column; without it an older row could win later."""
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
    """Return the option values for the arguments ``partial_update`` and ``merger`` of an upsert.

    Raises:
        InvalidOptionError: a bad value.
    """
    options = resolve({"partial_update": partial_update}).values
    if merger is None:
        return options
    named = resolve({"merger": merger}).values if isinstance(merger, str) else {_MERGER: merger}
    return {**options, **named}
