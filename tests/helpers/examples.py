"""The number of examples of expensive Hypothesis tests."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

__all__ = ["examples"]

#: The number of examples of the profile ``whole`` (`conftest.py`).
_WHOLE: Final = 100
_FEWEST: Final = 3


def examples(whole: int) -> int:
    """Return the number of examples: this many in profile ``whole``, a third on a plain run, ten times by night."""
    return max(_FEWEST, whole * settings.default.max_examples // _WHOLE)
