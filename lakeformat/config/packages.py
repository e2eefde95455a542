"""The packages that options need beside those that come with lakeformat, and the extras that install them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Final

from lakeformat.config.beside_options import BESIDE
from lakeformat.config.catalog_options import CATALOG_SWITCH, wanted_catalogs
from lakeformat.config.lock_options import LOCK_PROVIDER, lock_kind
from lakeformat.config.problems import Problem
from lakeformat.extras import install_line

__all__ = ["catalog_package_problem", "find_missing_packages"]

#: Maps each kind of lock to what it is called, its package, and the extra that installs it.
_LOCKS: Final = {
    "zookeeper": ("the lock in ZooKeeper", "kazoo", "zookeeper"),
    "dynamodb": ("the lock in DynamoDB", "boto3", "dynamodb"),
}
#: Maps each catalog to the package of its client, and to the extra that installs it.
_CATALOGS: Final = {"glue": ("boto3", "glue"), "hive": ("pymetastore", "hive")}


def find_missing_packages(get: Callable[[str], Any]) -> Iterator[Problem]:
    """Find packages that a write with these options needs and that are not installed.

    Args:
        get: returns the value of an option.
    """
    kind, is_implicit = lock_kind(get)
    if kind in _LOCKS:
        what, package, extra = _LOCKS[kind]
        for name in (package, "xxhash") if is_implicit else (package,):
            if text := _missing(what, name, extra):
                yield Problem(LOCK_PROVIDER, text)
    for catalog in wanted_catalogs(get):
        if text := catalog_package_problem(catalog):
            yield Problem(CATALOG_SWITCH, text)
    yield from _beside_problem(get)


def _beside_problem(get: Callable[[str], Any]) -> Iterator[Problem]:
    if "iceberg" in get(BESIDE) and (text := _missing("Iceberg's metadata beside a table", "pyiceberg", "iceberg")):
        yield Problem(BESIDE, text)


def catalog_package_problem(catalog: str) -> str:
    """Return what is missing to call a catalog, ``glue`` or ``hive``; "" if its package is installed."""
    package, extra = _CATALOGS[catalog]
    return _missing(f"the catalog {catalog}", package, extra)


def _missing(what: str, package: str, extra: str) -> str:
    return "" if find_spec(package) else f"{what} needs {package}; {install_line(extra)}"
