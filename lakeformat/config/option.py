"""What an option is, and how its text becomes a value.

The user's functions by name: ``package.module:function``.
"""

from __future__ import annotations

import enum
import importlib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, cast

from lakeformat.errors import InvalidOptionError
from lakeformat.model.zones import time_zone

__all__ = [
    "INDEX_TYPES",
    "WRITE",
    "Effect",
    "Option",
    "callable_name",
    "clustering_execution",
    "clustering_plan",
    "codec",
    "count",
    "dup_policy",
    "fields",
    "flag",
    "function",
    "import_callable",
    "index",
    "layout_strategy",
    "merge_strategy",
    "mergers",
    "one_of",
    "partial",
    "partitioner_class",
    "pattern",
    "positive",
    "share",
    "zone",
]

WRITE: Final = "hoodie.datasource.write."
_SET_MODE: Final = "say the rule by hoodie.write.record.merge.mode or hoodie.datasource.write.payload.class"
_PLAN_STRATEGIES: Final = (
    "SizeBasedClusteringPlanStrategy",
    "RecentDaysClusteringPlanStrategy",
    "SelectedPartitionsClusteringPlanStrategy",
    "SingleFileSortPlanStrategy",
)
_EXECUTION_STRATEGIES: Final = ("SortAndSizeExecutionStrategy", "SingleFileSortExecutionStrategy")
#: Values of ``hoodie.index.type``, and those of Hudi's that lakeformat does not have.
INDEX_TYPES: Final = ("AUTO", "BLOOM", "SIMPLE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY", "BUCKET")
_UNBUILT_INDEXES: Final = frozenset({
    "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX", "HBASE", "FLINK_STATE",
})  # fmt: skip


class Effect(enum.Enum):
    """When an option counts."""

    TABLE = "table"
    WRITE = "write"
    READ = "read"


def flag(text: str) -> bool:
    """True or false."""
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError("write true or false")
    return lowered == "true"


def fields(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _at_least(least: int, text: str) -> int:
    with suppress(ValueError):
        value = int(text.strip())
        if value >= least:
            return value
    raise ValueError(f"write a whole number from {least} up")


def count(text: str) -> int:
    """A number from 0 up."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """A number from 1 up."""
    return _at_least(1, text)


def share(text: str) -> float:
    """A number between 0 and 1."""
    with suppress(ValueError):
        value = float(text)
        if 0 < value < 1:
            return value
    raise ValueError("write a number between 0 and 1")


def zone(text: str) -> str:
    """A time zone's name."""
    try:
        time_zone(text.strip())
    except InvalidOptionError:
        raise ValueError("write a region, UTC or +hh:mm") from None
    return text.strip()


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser that takes one of the choices, in any case."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"write one of {', '.join(choices)}")

    return parse


def index(text: str) -> str:
    """A kind of index that is built."""
    if text.strip().upper() in _UNBUILT_INDEXES:
        raise ValueError(f"that index is not built; write one of {', '.join(INDEX_TYPES)}")
    return one_of(*INDEX_TYPES)(text)


def partial(text: str) -> tuple[str, ...]:
    """``true`` is every column of the input, kept as ``*``; ``false`` is none."""
    lowered = text.strip().lower()
    if lowered in {"true", "*"}:
        return ("*",)
    names = fields(text)
    if not names:  # Nobody who lists no columns wants all of them overwritten.
        raise ValueError("write true, false or the names of columns")
    return () if lowered == "false" else names


def dup_policy(text: str) -> str:
    """Also by the older switch's true and false, and by SQL's name for none."""
    older = {"true": "drop", "false": "none", "insert": "none"}
    return older.get(text.strip().lower()) or one_of("none", "drop", "fail")(text)


def partitioner_class(text: str) -> str:
    """Hudi's partitioner by sort columns; other Java classes are refused."""
    name = text.strip().rpartition(".")[2]
    if name not in {"RowCustomColumnsSortPartitioner", "RDDCustomColumnsSortPartitioner"}:
        raise ValueError(
            "a Java class cannot run here; write RowCustomColumnsSortPartitioner, or give a Python function in "
            "lakeformat.bulkinsert.partitioner"
        )
    return name


def function(text: str) -> str:
    """``package.module:function``."""
    module, colon, name = text.strip().partition(":")
    if not (module and colon and name):
        raise ValueError("write package.module:function")
    return text.strip()


def merge_strategy(text: str) -> str:
    """Return the merge mode that the id of a strategy asks for; "" where the id leaves it open."""
    ids = {
        "ce9acb64-bde0-424c-9b91-f6ebba25356d": "COMMIT_TIME_ORDERING",
        "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": "",  # The default of Hudi 0.x, also without an ordering column.
        "00000000-0000-0000-0000-000000000000": "",
        "": "",
    }
    if text.strip().lower() not in ids:
        raise ValueError(f"a merger of your own cannot run here: leave it out and {_SET_MODE}")
    return ids[text.strip().lower()]


def mergers(text: str) -> tuple[str, ...]:
    """Return the classes, all of which must be Hudi's own."""
    known = {
        "HoodieAvroRecordMerger",
        "HoodiePreCombineAvroRecordMerger",
        "HoodieSparkRecordMerger",
        "DefaultSparkRecordMerger",
        "OverwriteWithLatestSparkRecordMerger",
    }
    found = fields(text)
    for name in found:
        package, _, short = name.rpartition(".")
        if short not in known or not f"{package}.".startswith(("org.apache.hudi.", ".")):
            raise ValueError(f"the merger {name} cannot run here: leave it out and {_SET_MODE}")
    return found


def clustering_plan(text: str) -> str:
    """Return what chooses the files of a clustering, of Hudi's plan strategies that are built."""
    return _strategy(text, _PLAN_STRATEGIES, "plan")


def clustering_execution(text: str) -> str:
    """Return how a clustering runs, of Hudi's execution strategies that are built."""
    return _strategy(text, _EXECUTION_STRATEGIES, "execution")


def _strategy(text: str, built: tuple[str, ...], what: str) -> str:
    """Return the class without its package and its engine's name."""
    short = re.sub(r"^(org\.apache\.hudi\.[\w.]*\.)?(Spark|Java|Flink)", "", text.strip())
    if short not in built:
        names = ", ".join(f"Spark{name}" for name in built)
        raise ValueError(f"that {what} strategy is not built; leave it out or write one of {names}")
    return short


def layout_strategy(text: str) -> str:
    """By Hudi's older and newer names."""
    return "z-order" if text.strip().lower() == "zorder" else one_of("linear", "z-order", "hilbert")(text)


def pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text.strip())
    except re.error as error:
        raise ValueError(f"write a regular expression ({error})") from None
    return text.strip()


def codec(text: str) -> str:
    """By Arrow's name, which is another for one of them."""
    name = one_of("zstd", "snappy", "gzip", "uncompressed")(text)
    return "none" if name == "uncompressed" else name


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. ``parse`` raises ``ValueError`` with advice; ``default`` is the parsed value."""

    key: str
    doc: str
    effect: Effect
    parse: Callable[[str], Any] = str.strip
    default: Any = None
    aliases: tuple[str, ...] = ()


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
