"""How many examples the properties look at that cost more than most."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

__all__ = ["examples"]

#: The profile ``whole`` (`conftest.py`) has so many.
_WHOLE: Final = 100
_FEWEST: Final = 3


def examples(whole: int) -> int:
    """So many by the profile ``whole``, in proportion by others: about a third on a plain run, ten times by night."""
    return max(_FEWEST, whole * settings.default.max_examples // _WHOLE)
