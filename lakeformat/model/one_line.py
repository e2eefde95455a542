"""A base class for values that an interpreter shows on one line."""

from __future__ import annotations

from lakeformat.public import public

__all__ = ["OneLine"]


@public
class OneLine:
    """A class whose ``repr`` is its name and the first line of its ``str``. Give a dataclass ``repr=False``."""

    __slots__ = ()

    def __repr__(self) -> str:
        line = " ".join(str(self).partition("\n")[0].split())
        return f"{type(self).__name__}({line.rstrip(':')})"
