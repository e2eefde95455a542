"""Helpers of exported classes and functions: their public module name, and results that print on one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["OneLine", "public", "public_as", "spark_public"]

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


@public
class OneLine:
    """A class whose ``repr`` is its name and the first line of its ``str``. Give a dataclass ``repr=False``."""

    __slots__ = ()

    def __repr__(self) -> str:
        line = " ".join(str(self).partition("\n")[0].split())
        return f"{type(self).__name__}({line.rstrip(':')})"
