"""The number of examples of expensive Hypothesis tests."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

__all__ = ["examples"]

#: The number of examples of the profile ``whole`` (`conftest.py`).
_WHOLE: Final = 100
#: Percent of its examples that an expensive test tries in the profile ``look``.
_LOOK: Final = 10
_FEWEST: Final = 3


def examples(whole: int) -> int:
    """Return the number of examples: this many in profile ``whole``, a tenth on a plain run, ten times by night."""
    percent = _LOOK if settings.get_current_profile_name() == "look" else settings.default.max_examples * 100 // _WHOLE
    return max(_FEWEST, whole * percent // 100)
