"""What options say of the merge rule, typed: parsed once, as `Options.merge`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import WRITE
from lakeformat.errors import InvalidOptionError

__all__ = ["MODE", "PAYLOAD", "MergeOptions"]

MODE: Final = "hoodie.write.record.merge.mode"
PAYLOAD: Final = WRITE + "payload.class"
_STRATEGY: Final = "hoodie.write.record.merge.strategy.id"


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """Which rule is asked for.

    Attributes:
        mode: by its name or the id of its strategy; None if neither is given.
        mode_option: the option that names the mode.
        payload: the payload class, with or without its package.
        ordering: the ordering column of a new table.
    """

    mode: str | None
    mode_option: str
    payload: str | None
    ordering: str | None

    @property
    def asked_by(self) -> str | None:
        """The option that names the rule, if any does."""
        return self.mode_option if self.mode else PAYLOAD if self.payload else None

    @classmethod
    def of(cls, value: Callable[[str], Any]) -> MergeOptions:
        """From what gives the value of a key, or its default.

        Raises:
            InvalidOptionError: mode and strategy contradict each other.
        """
        mode, by_id = value(MODE), value(_STRATEGY)
        if mode and by_id and mode != by_id:
            raise InvalidOptionError(
                f"options {MODE}={mode} and {_STRATEGY}, which is the id of {by_id}, contradict each other; give one"
            )
        option = MODE if mode or not by_id else _STRATEGY
        return cls(mode or by_id or None, option, value(PAYLOAD), value("hoodie.table.ordering.fields"))
