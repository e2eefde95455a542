"""The line that installs what an optional package needs. All errors about a missing package end with it.

Two distributions deliver this code: ``lakeformat``, which brings PySpark, pandas and the command line, and
``lakeformat-core``, which does not (``tools/build_core.py``). Their extras have the same names.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

__all__ = ["install_line"]

_WHOLE, _CORE = "lakeformat", "lakeformat-core"


def install_line(extra: str, options: str = "") -> str:
    """Return ``run: pip install 'lakeformat[extra]'``, with the name of the distribution that is installed.

    Args:
        extra: the extra, or several of them with commas.
        options: further options of pip, such as ``-U``.
    """
    name = _CORE if _is_installed(_CORE) and not _is_installed(_WHOLE) else _WHOLE
    return f"run: pip install {options and options + ' '}'{name}[{extra}]'"


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
