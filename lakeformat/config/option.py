"""Options: name, help text, default, and the parsers from text to value.

A function of the user's is given by name: ``package.module:function``.
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
    "import_callable",
    "make_choice_parser",
    "parse_codec",
    "parse_count",
    "parse_dup_policy",
    "parse_execution_strategy",
    "parse_flag",
    "parse_function_name",
    "parse_index",
    "parse_layout_strategy",
    "parse_merge_strategy",
    "parse_mergers",
    "parse_names",
    "parse_partial_columns",
    "parse_partitioner",
    "parse_pattern",
    "parse_plan_strategy",
    "parse_positive",
    "parse_share",
    "parse_zone",
]

WRITE: Final = "hoodie.datasource.write."
_SET_MODE: Final = "set the rule by hoodie.write.record.merge.mode or hoodie.datasource.write.payload.class"
_PLAN_STRATEGIES: Final = (
    "SizeBasedClusteringPlanStrategy",
    "RecentDaysClusteringPlanStrategy",
    "SelectedPartitionsClusteringPlanStrategy",
    "SingleFileSortPlanStrategy",
)
_EXECUTION_STRATEGIES: Final = ("SortAndSizeExecutionStrategy", "SingleFileSortExecutionStrategy")
#: Values of ``hoodie.index.type`` that lakeformat supports. `_UNBUILT_INDEXES` has Hudi's other values.
INDEX_TYPES: Final = ("AUTO", "BLOOM", "SIMPLE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY", "BUCKET")
_UNBUILT_INDEXES: Final = frozenset({
    "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX", "HBASE", "FLINK_STATE",
})  # fmt: skip


class Effect(enum.Enum):
    """The step that an option affects: creating a table, writing, or reading."""

    TABLE = "table"
    WRITE = "write"
    READ = "read"


def parse_flag(text: str) -> bool:
    """Parse true or false."""
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError("write true or false")
    return lowered == "true"


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parse_at_least(least: int, text: str) -> int:
    with suppress(ValueError):
        value = int(text.strip())
        if value >= least:
            return value
    raise ValueError(f"write a whole number from {least} up")


def parse_count(text: str) -> int:
    """Parse a whole number from 0 up."""
    return _parse_at_least(0, text)


def parse_positive(text: str) -> int:
    """Parse a whole number from 1 up."""
    return _parse_at_least(1, text)


def parse_share(text: str) -> float:
    """Parse a number between 0 and 1."""
    with suppress(ValueError):
        value = float(text)
        if 0 < value < 1:
            return value
    raise ValueError("write a number between 0 and 1")


def parse_zone(text: str) -> str:
    """Parse a time zone's name."""
    try:
        time_zone(text.strip())
    except InvalidOptionError:
        raise ValueError("write a region, UTC or +hh:mm") from None
    return text.strip()


def make_choice_parser(*choices: str) -> Callable[[str], str]:
    """Make a parser that accepts one of the choices, in any case."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"write one of {', '.join(choices)}")

    return parse


def parse_index(text: str) -> str:
    """Parse an index type that lakeformat has."""
    if text.strip().upper() in _UNBUILT_INDEXES:
        raise ValueError(f"that index is not built; write one of {', '.join(INDEX_TYPES)}")
    return make_choice_parser(*INDEX_TYPES)(text)


def parse_partial_columns(text: str) -> tuple[str, ...]:
    """Parse column names. ``true`` means every column of the input and returns ``*``; ``false`` returns none."""
    lowered = text.strip().lower()
    if lowered in {"true", "*"}:
        return ("*",)
    names = parse_names(text)
    if not names:  # An empty list is a mistake: it must not overwrite all columns.
        raise ValueError("write true, false or the names of columns")
    return () if lowered == "false" else names


def parse_dup_policy(text: str) -> str:
    """Parse a policy. Accept also the older switch's true and false, and SQL's ``insert`` for none."""
    older = {"true": "drop", "false": "none", "insert": "none"}
    return older.get(text.strip().lower()) or make_choice_parser("none", "drop", "fail")(text)


def parse_partitioner(text: str) -> str:
    """Parse the name of Hudi's partitioner by sort columns. Refuse other Java classes."""
    name = text.strip().rpartition(".")[2]
    if name not in {"RowCustomColumnsSortPartitioner", "RDDCustomColumnsSortPartitioner"}:
        raise ValueError(
            "a Java class cannot run here; write RowCustomColumnsSortPartitioner, or give a Python function in "
            "lakeformat.bulkinsert.partitioner"
        )
    return name


def parse_function_name(text: str) -> str:
    """Check the form ``package.module:function``."""
    module, colon, name = text.strip().partition(":")
    if not (module and colon and name):
        raise ValueError("write package.module:function")
    return text.strip()


def parse_merge_strategy(text: str) -> str:
    """Return the merge mode for the id of a strategy; "" if the id leaves the mode open."""
    ids = {
        "ce9acb64-bde0-424c-9b91-f6ebba25356d": "COMMIT_TIME_ORDERING",
        "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": "",  # The default of Hudi 0.x, even without an ordering column.
        "00000000-0000-0000-0000-000000000000": "",
        "": "",
    }
    if text.strip().lower() not in ids:
        raise ValueError(f"a merger of your own cannot run here: leave it out and {_SET_MODE}")
    return ids[text.strip().lower()]


def parse_mergers(text: str) -> tuple[str, ...]:
    """Parse class names. All of them must be mergers of Hudi."""
    known = {
        "HoodieAvroRecordMerger",
        "HoodiePreCombineAvroRecordMerger",
        "HoodieSparkRecordMerger",
        "DefaultSparkRecordMerger",
        "OverwriteWithLatestSparkRecordMerger",
    }
    names = parse_names(text)
    for name in names:
        package, _, short = name.rpartition(".")
        if short not in known or not f"{package}.".startswith(("org.apache.hudi.", ".")):
            raise ValueError(f"the merger {name} cannot run here: leave it out and {_SET_MODE}")
    return names


def parse_plan_strategy(text: str) -> str:
    """Parse the plan strategy, which chooses the files of a clustering: one of Hudi's that lakeformat has."""
    return _parse_strategy(text, _PLAN_STRATEGIES, "plan")


def parse_execution_strategy(text: str) -> str:
    """Parse the execution strategy of a clustering: one of Hudi's that lakeformat has."""
    return _parse_strategy(text, _EXECUTION_STRATEGIES, "execution")


def _parse_strategy(text: str, built: tuple[str, ...], what: str) -> str:
    """Return the class name without its package and the prefix of its engine."""
    short = re.sub(r"^(org\.apache\.hudi\.[\w.]*\.)?(Spark|Java|Flink)", "", text.strip())
    if short not in built:
        names = ", ".join(f"Spark{name}" for name in built)
        raise ValueError(f"that {what} strategy is not built; leave it out or write one of {names}")
    return short


def parse_layout_strategy(text: str) -> str:
    """Parse a layout strategy by Hudi's older or newer name."""
    return "z-order" if text.strip().lower() == "zorder" else make_choice_parser("linear", "z-order", "hilbert")(text)


def parse_pattern(text: str) -> str:
    """Check a regular expression."""
    try:
        re.compile(text.strip())
    except re.error as error:
        raise ValueError(f"write a regular expression ({error})") from None
    return text.strip()


def parse_codec(text: str) -> str:
    """Parse a codec and return Arrow's name for it."""
    name = make_choice_parser("zstd", "snappy", "gzip", "uncompressed")(text)
    return "none" if name == "uncompressed" else name


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        key: Hudi's or lakeformat's full name.
        doc: the help text.
        effect: the step that it affects.
        parse: makes the value from the text; raises ``ValueError`` with advice.
        default: the default, as a parsed value.
        aliases: other accepted names.
    """

    key: str
    doc: str
    effect: Effect
    parse: Callable[[str], Any] = str.strip
    default: Any = None
    aliases: tuple[str, ...] = ()


def import_callable(target: Any) -> Callable[..., Any]:
    """Return a function that is given directly or as ``package.module:function``. The function's name may be dotted.

    Raises:
        ImportError: the module fails or lacks the function; the message is ``<class>: <reason>``.
        TypeError: the target cannot be called; the message is its type's name.
    """
    value = target
    if isinstance(target, str):
        module, _, name = target.partition(":")
        try:
            value = attrgetter(name)(importlib.import_module(module))
        except Exception as error:  # The module is the user's: it may raise anything.
            raise ImportError(f"{type(error).__name__}: {error}") from error
    if not callable(value):
        raise TypeError(type(value).__name__)
    return cast("Callable[..., Any]", value)


def callable_name(function: Callable[..., Any]) -> str:
    """Return ``module:function`` for a function. Unknown parts are replaced."""
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"
