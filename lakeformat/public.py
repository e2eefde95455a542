"""The decorator of classes and functions that a package exports."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["public", "public_as", "spark_public"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_Exported = TypeVar("_Exported")


def public(exported: _Exported) -> _Exported:
    """Set ``__module__`` to ``lakeformat``, so that ``help()`` and tracebacks show ``lakeformat.Table``.

    Pickles name a class by this module, so a class with instances must be in ``lakeformat.__all__``. A base class of an
    exported class need not be: ``help()`` names it among the bases.
    """
    exported.__module__ = "lakeformat"
    return exported


def public_as(name: str) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Make a decorator that does what `public` does, for a function that is exported by another name."""

    def rename(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        function.__name__ = function.__qualname__ = name
        return public(function)

    return rename


def spark_public(exported: _Exported) -> _Exported:
    """Set ``__module__`` to ``lakeformat.spark``; see `public`."""
    exported.__module__ = "lakeformat.spark"
    return exported
