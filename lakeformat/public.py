"""Decorators that give exported classes and functions their public module name, and a base class for one-line reprs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["OneLine", "public", "public_as", "spark_public"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_Exported = TypeVar("_Exported")


def public(exported: _Exported) -> _Exported:
    """Set ``__module__`` to ``lakeformat``, so that ``help()`` and tracebacks show ``lakeformat.Table``.

    Pickle finds the class of an object by this module name, so a class that has instances must be in
    ``lakeformat.__all__``. A base class without instances need not be there; ``help()`` shows it among the bases.
    """
    exported.__module__ = "lakeformat"
    return exported


def public_as(name: str) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Return a decorator that sets ``__name__`` to ``name`` and, as `public` does, ``__module__`` to ``lakeformat``."""

    def rename(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        function.__name__ = function.__qualname__ = name
        return public(function)

    return rename


def spark_public(exported: _Exported) -> _Exported:
    """Set ``__module__`` to ``lakeformat.spark``, so that ``help()`` shows ``lakeformat.spark.LakehouseTable``."""
    exported.__module__ = "lakeformat.spark"
    return exported


@public
class OneLine:
    """A base class whose ``repr`` is the class name and the first line of ``str``.

    A dataclass that inherits from it needs ``repr=False``, or its own ``repr`` takes precedence.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        line = " ".join(str(self).partition("\n")[0].split())
        return f"{type(self).__name__}({line.rstrip(':')})"
