"""The user's functions by name: ``package.module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any, cast

__all__ = ["callable_name", "import_callable"]


def import_callable(target: Any) -> Callable[..., Any]:
    """The function, given as it is or as ``package.module:function``; the latter may be dotted.

    Raises:
        ImportError: the module fails or lacks the function, as ``<class>: <reason>``.
        TypeError: it cannot be called, with its type's name.
    """
    found = target
    if isinstance(target, str):
        module, _, name = target.partition(":")
        try:
            found = attrgetter(name)(importlib.import_module(module))
        except Exception as error:  # The module is the user's: it may raise anything.
            raise ImportError(f"{type(error).__name__}: {error}") from error
    if not callable(found):
        raise TypeError(type(found).__name__)
    return cast("Callable[..., Any]", found)


def callable_name(function: Callable[..., Any]) -> str:
    """``module:function``, as far as the function says."""
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"
