"""Which merge rule options ask for: by mode, payload class or the id of a merge strategy. Pure."""

from __future__ import annotations

from typing import Final

from lakeformat.config.option import WRITE
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, nearest
from lakeformat.model import table_config as names
from lakeformat.model.table_config import MergeMode, TableConfig

__all__ = ["MODE_OPTIONS", "merge_mode", "payload_name"]

_MODE: Final = "hoodie.write.record.merge.mode"
_PAYLOAD: Final = WRITE + "payload.class"
_STRATEGY: Final = "hoodie.write.record.merge.strategy.id"
_ORDERING: Final = "hoodie.table.ordering.fields"
#: Options that may name the rule; their parsed values are empty where they do not.
MODE_OPTIONS: Final = (_MODE, _PAYLOAD, _STRATEGY)


def payload_name(payload: str | None) -> str:
    """Return the full name of a payload class that may be given without its package."""
    return payload or "" if not payload or "." in payload else f"org.apache.hudi.common.model.{payload}"


def merge_mode(config: TableConfig | None, options: Options) -> str:
    """Return the rule for a key that comes again: what the table stores, else the options, else Hudi 1.x's default.

    Raises:
        UnsupportedTableError, InvalidOptionError: a payload class whose rule is not known.
    """
    if config is not None and (config.get(names.PAYLOAD) or config.get(names.MERGE_MODE)):
        return config.merge_mode
    mode, payload = _asked_mode(options), options[_PAYLOAD]
    if payload:
        full = payload_name(payload)
        if full not in MergeMode.OF_PAYLOAD:
            known = [name.rpartition(".")[2] for name in MergeMode.OF_PAYLOAD]
            raise InvalidOptionError(
                f"{_PAYLOAD}={payload} is not supported{nearest(payload, known)}; use {', '.join(known)}"
            )
        by_payload = MergeMode.OF_PAYLOAD[full]
        if mode and mode != by_payload:
            key = _MODE if options[_MODE] else _STRATEGY
            raise InvalidOptionError(f"options {key}={mode} and {_PAYLOAD}={payload} contradict each other; give one")
        return by_payload
    if mode:
        return str(mode)
    ordering = config.ordering_field if config is not None else options[_ORDERING]
    return MergeMode.EVENT_TIME if ordering else MergeMode.COMMIT_TIME


def _asked_mode(options: Options) -> str | None:
    """Return the mode that the options name, by itself or by the id of its strategy."""
    mode, by_id = options[_MODE], options[_STRATEGY]
    if mode and by_id and mode != by_id:
        raise InvalidOptionError(
            f"options {_MODE}={mode} and {_STRATEGY}, which is the id of {by_id}, contradict each other; give one"
        )
    return mode or by_id or None
