"""The fixtures of `tests.helpers.crash_fixtures` for this folder."""

from __future__ import annotations

from tests.helpers.crash_fixtures import one_thread, template

__all__ = ["one_thread", "template"]
