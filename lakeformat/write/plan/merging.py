"""The merge rule of a write, from the table's config, the options and the input's columns.

Options select the merge mode by its name, a payload class or the id of a merge strategy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from lakeformat.config.resolve import Options, resolve
from lakeformat.config.table_options import PAYLOAD
from lakeformat.errors import InvalidOptionError, SchemaMismatchError, meant, nearest
from lakeformat.merge import MergeFunction, Merger, MergeRule
from lakeformat.model import table_config as names
from lakeformat.model.keys import KeySettings
from lakeformat.model.merge_settings import MergeSettings, PartialUpdate, merge_settings
from lakeformat.model.table_config import MergeMode, TableConfig

__all__ = ["find_partial_or_merger", "merge_mode", "merge_rule", "payload_name", "settings_of", "upsert_options"]


def payload_name(payload: str | None) -> str:
    """Return the full name of a payload class; a name without a package gets that of Hudi's class of this name."""
    if not payload or "." in payload:
        return payload or ""
    payloads = {name.rpartition(".")[2]: name for name in MergeMode.OF_PAYLOAD}
    return payloads.get(payload, f"org.apache.hudi.common.model.{payload}")


def merge_mode(config: TableConfig | None, options: Options) -> str:
    """Return the merge mode for rows with the same key.

    The mode that the table stores comes first, then that of the options. If neither names a mode, Hudi 1.x's default
    applies: event time if there is an ordering column, else commit time.

    Raises:
        UnsupportedTableError, InvalidOptionError: if the rule of a payload class is not known.
    """
    if config is not None and config.names_merge_rule:
        return config.merge_mode
    merge_options = options.merge
    mode, payload = merge_options.mode, merge_options.payload
    if payload:
        full = payload_name(payload)
        if full not in MergeMode.OF_PAYLOAD:
            payloads = [name.rpartition(".")[2] for name in MergeMode.OF_PAYLOAD]
            raise InvalidOptionError(
                f"{PAYLOAD}={payload} is not supported{nearest(payload, payloads)}; use {', '.join(payloads)}"
            )
        by_payload = MergeMode.OF_PAYLOAD[full]
        if mode and mode != by_payload:
            key = merge_options.mode_option
            raise InvalidOptionError(f"options {key}={mode} and {PAYLOAD}={payload} contradict each other; give one")
        return by_payload
    if mode:
        return str(mode)
    ordering = config.ordering_fields if config is not None else merge_options.ordering
    return MergeMode.EVENT_TIME if ordering else MergeMode.COMMIT_TIME


def settings_of(config: TableConfig, options: Options) -> MergeSettings:
    """Return the settings by which a write merges rows.

    Copy-on-write tables of Hudi 0.x store no payload class, so the class that the options name applies.
    """
    payload = options.merge.payload
    if config.names_merge_rule or not payload:
        return config.merge_settings
    return merge_settings({**config.values, names.PAYLOAD: payload_name(payload)}, config.ordering_fields)


def find_partial_or_merger(options: Options) -> tuple[tuple[str, ...], str | None]:
    """Return the columns to update and the merger that the options name.

    Raises:
        InvalidOptionError: the options name both.
    """
    partial, target = options[_PARTIAL], options[_MERGER]
    if partial and target:
        raise InvalidOptionError(f"options {_PARTIAL} and {_MERGER} contradict each other; give one")
    return partial, target


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
    mode, settings = merge_mode(config, options), settings_of(config, options)
    ordering = settings.ordering_fields
    if mode == MergeMode.AWS_DMS and config.traits.combines_by_arrival:
        ordering = ()
    event_time = MergeMode.STORED_AS.get(mode, mode) == MergeMode.EVENT_TIME
    fills = MergeMode.PARTIAL_OF.get(mode)
    partial, target = find_partial_or_merger(options)
    by_order = MergeRule(ordering, event_time, is_sequence=settings.is_sequence)
    if not meets_stored or not (partial or target):
        folds = mode in {MergeMode.PARTIAL_UPDATE, MergeMode.POSTGRES}
        unavailable = settings.unavailable_value if fills is PartialUpdate.FILL_UNAVAILABLE else ""
        return replace(by_order, partial=fills, folds=folds, unavailable=unavailable)
    if target:
        merger = Merger(target, (*keys.record_fields, *(field.name for field in keys.partition_fields)))
        merger.function()
        return replace(by_order, event_time=False, merger=merger)
    if fills:
        raise InvalidOptionError(
            f"{_PARTIAL} writes every value that the rows have, and this table's {MergeMode.PAYLOAD_OF[mode]} keeps "
            "some stored values instead; leave the option out"
        )
    return replace(by_order, columns=_columns_to_write(partial, rows, ordering))


def _columns_to_write(partial: tuple[str, ...], rows: pa.Schema, ordering: Sequence[str]) -> frozenset[str]:
    """Return the columns that a partial update sets.

    The table's ordering columns are always among them. If they kept their old values, an older row could win later.
    """
    present = frozenset(rows.names)
    if partial == ("*",):
        return present
    for name in partial:
        if name not in present:
            raise SchemaMismatchError(
                f"the input has no column {name!r}{meant(name, rows.names)}, which {_PARTIAL} names; add it to the "
                "rows, or take it off the option"
            )
    return frozenset({*partial, *(name if name in present else name.partition(".")[0] for name in ordering)})


def upsert_options(
    partial_update: bool | str | Sequence[str] | None, merger: MergeFunction | str | None
) -> Mapping[str, Any]:
    """Return the option values for the arguments ``partial_update`` and ``merger`` of an upsert.

    Raises:
        InvalidOptionError: if a value is not valid.
    """
    options = resolve({"partial_update": partial_update}).values
    if merger is None:
        return options
    named = resolve({"merger": merger}).values if isinstance(merger, str) else {_MERGER: merger}
    return {**options, **named}
