"""Values that an interpreter echoes as one line."""

from __future__ import annotations

__all__ = ["OneLine"]


class OneLine:
    """Makes ``repr`` the class's name around the first line of ``str``; give a dataclass ``repr=False``."""

    __slots__ = ()

    def __repr__(self) -> str:
        line = " ".join(str(self).partition("\n")[0].split())
        return f"{type(self).__name__}({line.rstrip(':')})"
