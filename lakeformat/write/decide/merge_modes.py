"""The merge mode that options select: by mode, payload class or the id of a merge strategy. Pure."""

from __future__ import annotations

from lakeformat.config.merge_settings import PAYLOAD
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, nearest
from lakeformat.model import table_config as names
from lakeformat.model.table_config import MergeMode, TableConfig

__all__ = ["merge_mode", "payload_name"]


def payload_name(payload: str | None) -> str:
    """Return the full name of a payload class; a name without a package gets Hudi's package."""
    return payload or "" if not payload or "." in payload else f"org.apache.hudi.common.model.{payload}"


def merge_mode(config: TableConfig | None, options: Options) -> str:
    """Return the merge mode for rows with the same key.

    The table's stored mode comes first, then the options. If neither names one, Hudi 1.x's default applies: event time
    with an ordering column, else commit time.

    Raises:
        UnsupportedTableError, InvalidOptionError: if the rule of a payload class is not known.
    """
    if config is not None and (config.get(names.PAYLOAD) or config.get(names.MERGE_MODE)):
        return config.merge_mode
    merge_options = options.merge
    mode, payload = merge_options.mode, merge_options.payload
    if payload:
        full = payload_name(payload)
        if full not in MergeMode.OF_PAYLOAD:
            known = [name.rpartition(".")[2] for name in MergeMode.OF_PAYLOAD]
            raise InvalidOptionError(
                f"{PAYLOAD}={payload} is not supported{nearest(payload, known)}; use {', '.join(known)}"
            )
        by_payload = MergeMode.OF_PAYLOAD[full]
        if mode and mode != by_payload:
            key = merge_options.mode_option
            raise InvalidOptionError(f"options {key}={mode} and {PAYLOAD}={payload} contradict each other; give one")
        return by_payload
    if mode:
        return str(mode)
    ordering = config.ordering_field if config is not None else merge_options.ordering
    return MergeMode.EVENT_TIME if ordering else MergeMode.COMMIT_TIME
