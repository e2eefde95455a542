"""The class `Option`, and the parsers of option values.

If the value of an option is a Python function of the user, it is written as ``package.module:function``.
"""

from __future__ import annotations

import enum
import importlib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, cast

from lakeformat.errors import InvalidOptionError
from lakeformat.model.bucket_rule import BucketRule
from lakeformat.model.hashing_metadata import MOST_BUCKETS
from lakeformat.model.index_type import INDEX_TYPES
from lakeformat.model.path_glob import compile_glob
from lakeformat.model.zones import time_zone

__all__ = [
    "INDEX_TYPES",
    "WRITE",
    "Effect",
    "Option",
    "callable_name",
    "declare",
    "import_callable",
    "make_choice_parser",
    "options_of",
    "parse_bad_rows",
    "parse_bucket_expressions",
    "parse_buckets",
    "parse_codec",
    "parse_count",
    "parse_dup_policy",
    "parse_execution_strategy",
    "parse_factor",
    "parse_flag",
    "parse_function_name",
    "parse_glob",
    "parse_growth",
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
    "values_of",
]

#: All numbers of options are less than this.
_MOST: Final = 1e6
WRITE: Final = "hoodie.datasource.write."
_SET_MODE: Final = "set the rule by hoodie.write.record.merge.mode or hoodie.datasource.write.payload.class"
_PLAN_STRATEGIES: Final = (
    "SizeBasedClusteringPlanStrategy",
    "RecentDaysClusteringPlanStrategy",
    "SelectedPartitionsClusteringPlanStrategy",
    "SingleFileSortPlanStrategy",
    "ConsistentBucketClusteringPlanStrategy",
)
_EXECUTION_STRATEGIES: Final = (
    "SortAndSizeExecutionStrategy",
    "SingleFileSortExecutionStrategy",
    "ConsistentBucketClusteringExecutionStrategy",
    "SingleSparkJobConsistentHashingExecutionStrategy",
)
#: Values of ``hoodie.index.type`` that only Hudi supports.
_UNBUILT_INDEXES: Final = frozenset({"HBASE", "FLINK_STATE"})
_PARTITIONED_RECORD_INDEX: Final = "RECORD_LEVEL_INDEX"


class Effect(enum.Enum):
    """The action that an option affects: creating a table, writing, or reading."""

    TABLE = "table"
    WRITE = "write"
    READ = "read"


def parse_flag(text: str) -> bool:
    """Parse ``true`` or ``false``, in any letter case."""
    lowered = text.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError("write true or false")
    return lowered == "true"


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas. Spaces around names and empty names are dropped."""
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


def parse_bucket_expressions(text: str) -> str:
    """Return the numbers of buckets of single partitions unchanged. Raise ValueError if they are not well formed."""
    BucketRule.parse(text, 1)
    return text


def parse_buckets(text: str) -> int:
    """Parse a number of buckets of a partition."""
    with suppress(ValueError):
        value = int(text.strip())
        if 1 <= value <= MOST_BUCKETS:
            return value
    raise ValueError(f"write a whole number from 1 to {MOST_BUCKETS}")


def parse_share(text: str) -> float:
    """Parse a number greater than 0 and less than 1."""
    return _parse_float(text, lambda value: 0 < value < 1, "between 0 and 1")


def parse_growth(text: str) -> float:
    """Parse a number from 1 up."""
    return _parse_float(text, lambda value: 1 <= value < _MOST, "from 1 up")


def parse_factor(text: str) -> float:
    """Parse a number greater than 0."""
    return _parse_float(text, lambda value: 0 < value < _MOST, "greater than 0")


def _parse_float(text: str, fits: Callable[[float], bool], condition: str) -> float:
    with suppress(ValueError):
        value = float(text)
        if fits(value):
            return value
    raise ValueError(f"write a number {condition}")


def parse_zone(text: str) -> str:
    """Check that a text names a time zone, and return it."""
    try:
        time_zone(text.strip())
    except InvalidOptionError:
        raise ValueError("write a region, UTC or +hh:mm") from None
    return text.strip()


def make_choice_parser(*choices: str) -> Callable[[str], str]:
    """Return a parser that accepts the choices in any letter case, and returns the choice as in ``choices``."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"write one of {', '.join(choices)}")

    return parse


def parse_glob(text: str) -> str:
    """Return a glob for paths of files unchanged. Raise ValueError if it is not well formed."""
    compile_glob(text)
    return text


def parse_index(text: str) -> str:
    """Parse an index type that lakeformat supports."""
    name = text.strip().upper()
    if name in _UNBUILT_INDEXES:
        raise ValueError(f"that index is not built; write one of {', '.join(INDEX_TYPES)}")
    if name == _PARTITIONED_RECORD_INDEX:
        raise ValueError(
            "a record index for each partition is not supported; write GLOBAL_RECORD_LEVEL_INDEX, whose keys are "
            "unique in the table, or AUTO"
        )
    older = {index.older_name: index.name for index in INDEX_TYPES.values() if index.older_name}
    return make_choice_parser(*INDEX_TYPES)(older.get(name, text))


def parse_partial_columns(text: str) -> tuple[str, ...]:
    """Parse the columns of a partial update: names, or ``true`` for all input columns (returns ``*``), or ``false``."""
    lowered = text.strip().lower()
    if lowered in {"true", "*"}:
        return ("*",)
    names = parse_names(text)
    if not names:  # An empty tuple would mean false, which overwrites all columns.
        raise ValueError("write true, false or the names of columns")
    return () if lowered == "false" else names


def parse_dup_policy(text: str) -> str:
    """Parse the policy for inserted rows whose keys the table already has: ``none``, ``drop`` or ``fail``.

    The values of Hudi's older options are accepted too: ``true`` means drop, ``false`` and ``insert`` mean none.
    """
    older = {"true": "drop", "false": "none", "insert": "none"}
    return older.get(text.strip().lower()) or make_choice_parser("none", "drop", "fail")(text)


def parse_bad_rows(text: str) -> str:
    """Parse what a write does with bad rows: ``fail`` or ``aside``; a flag means ``aside`` if it is true."""
    flags = {"true": "aside", "false": "fail"}
    return flags.get(text.strip().lower()) or make_choice_parser("fail", "aside")(text)


def parse_partitioner(text: str) -> str:
    """Parse the class name of Hudi's bulk insert partitioner that sorts by columns. Refuse other Java classes."""
    name = text.strip().rpartition(".")[2]
    if name not in {"RowCustomColumnsSortPartitioner", "RDDCustomColumnsSortPartitioner"}:
        raise ValueError(
            "a Java class cannot run here; write RowCustomColumnsSortPartitioner, or give a Python function in "
            "lakeformat.bulkinsert.partitioner"
        )
    return name


def parse_function_name(text: str) -> str:
    """Check that a text has the form ``package.module:function``, and return it. The function is not imported."""
    module, colon, name = text.strip().partition(":")
    if not (module and colon and name):
        raise ValueError("write package.module:function")
    return text.strip()


def parse_merge_strategy(text: str) -> str:
    """Return the merge mode that belongs to the id of a merge strategy; "" if the id does not determine the mode."""
    ids = {
        "ce9acb64-bde0-424c-9b91-f6ebba25356d": "COMMIT_TIME_ORDERING",
        # The id of event time. Hudi 0.x stores it even without an ordering column, so it does not determine the mode.
        "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": "",
        "00000000-0000-0000-0000-000000000000": "",
        "": "",
    }
    if text.strip().lower() not in ids:
        raise ValueError(f"a merger of your own cannot run here: leave it out and {_SET_MODE}")
    return ids[text.strip().lower()]


def parse_mergers(text: str) -> tuple[str, ...]:
    """Parse class names of record mergers. Refuse classes that are not part of Hudi."""
    packages = {
        "HoodieAvroRecordMerger",
        "HoodiePreCombineAvroRecordMerger",
        "HoodieSparkRecordMerger",
        "DefaultSparkRecordMerger",
        "OverwriteWithLatestSparkRecordMerger",
    }
    names = parse_names(text)
    for name in names:
        package, _, short = name.rpartition(".")
        if short not in packages or not f"{package}.".startswith(("org.apache.hudi.", ".")):
            raise ValueError(f"the merger {name} cannot run here: leave it out and {_SET_MODE}")
    return names


def parse_plan_strategy(text: str) -> str:
    """Parse the class name of a plan strategy, which chooses file slices to cluster. Return its short name."""
    return _parse_strategy(text, _PLAN_STRATEGIES, "plan")


def parse_execution_strategy(text: str) -> str:
    """Parse the class name of an execution strategy, which rewrites the files. Return its short name."""
    return _parse_strategy(text, _EXECUTION_STRATEGIES, "execution")


def _parse_strategy(text: str, built: tuple[str, ...], what: str) -> str:
    """Return the class name without package and engine (``Spark``, ``Java``, ``Flink``). Refuse unsupported classes."""
    short = re.sub(r"^(org\.apache\.hudi\.[\w.]*\.)?(Spark|Java|Flink)", "", text.strip())
    if short not in built:
        names = ", ".join(name if name.startswith("SingleSpark") else f"Spark{name}" for name in built)
        raise ValueError(f"that {what} strategy is not built; leave it out or write one of {names}")
    return short


def parse_layout_strategy(text: str) -> str:
    """Parse the order of rows in a clustering: ``linear``, ``z-order`` (or ``zorder``, ``z_order``) or ``hilbert``."""
    plain = re.sub("[-_]", "", text.strip().lower())
    return "z-order" if plain == "zorder" else make_choice_parser("linear", "z-order", "hilbert")(text)


def parse_pattern(text: str) -> str:
    """Check that a text is a regular expression, and return it."""
    try:
        re.compile(text.strip())
    except re.error as error:
        raise ValueError(f"write a regular expression ({error})") from None
    return text.strip()


def parse_codec(text: str) -> str:
    """Parse the name of a compression codec. Return Arrow's name of the codec."""
    name = make_choice_parser("zstd", "snappy", "gzip", "uncompressed")(text)
    return "none" if name == "uncompressed" else name


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        effect: The action that the option affects; other actions ignore it.
        key: The full name: Hudi's if Hudi has the option, else lakeformat's.
        doc: The help text.
        parse: A function that converts the text to the value, or raises ``ValueError`` with advice.
        default: The default, as a parsed value.
        aliases: Other accepted names.
    """

    effect: Effect
    key: str
    doc: str
    parse: Callable[[str], Any] = str.strip
    default: Any = None
    aliases: tuple[str, ...] = ()


_OPTION: Final = "option"
_CONVERT: Final = "convert"


def declare(
    effect: Effect,
    key: str,
    doc: str,
    parse: Callable[[str], Any] = str.strip,
    default: Any = None,
    aliases: tuple[str, ...] = (),
    *,
    convert: Callable[[Any], Any] | None = None,
    is_secret: bool = False,
) -> Any:
    """Declare an option as a field of a dataclass of options. The other arguments are those of `Option`.

    Args:
        convert: A function that makes the value of the field of the value of the option.
        is_secret: Whether the ``repr`` of the dataclass leaves the field out.
    """
    option = Option(effect, key, doc, parse, default, aliases)
    return field(metadata={_OPTION: option, _CONVERT: convert}, repr=not is_secret)


def options_of(declared: Any) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in order: those of its fields, and class variables."""
    members = declared.__dataclass_fields__.values()
    options = (member.metadata.get(_OPTION, member.default) for member in members)
    return tuple(option for option in options if isinstance(option, Option))


def values_of(declared: Any, value: Callable[[str], Any]) -> dict[str, Any]:
    """Return the values of the fields that a dataclass declares as options.

    Args:
        value: A function that returns the value of an option key, or its default.
    """
    values = {}
    for member in fields(declared):
        if _OPTION in member.metadata:
            given, convert = value(member.metadata[_OPTION].key), member.metadata[_CONVERT]
            values[member.name] = convert(given) if convert else given
    return values


def import_callable(target: Any) -> Callable[..., Any]:
    """Return the function ``target``, or import it if it is a text ``package.module:function``.

    The part after the colon may be dotted, such as ``Class.method``.

    Raises:
        ImportError: The import fails, or the module lacks the function. The message is ``<error class>: <reason>``.
        TypeError: The target cannot be called. The message is the name of its type.
    """
    value = target
    if isinstance(target, str):
        module, _, name = target.partition(":")
        try:
            value = attrgetter(name)(importlib.import_module(module))
        except Exception as error:  # The user's module may raise any error.
            raise ImportError(f"{type(error).__name__}: {error}") from error
    if not callable(value):
        raise TypeError(type(value).__name__)
    return cast("Callable[..., Any]", value)


def callable_name(function: Callable[..., Any]) -> str:
    """Return ``module:function`` for messages. If the callable has no such names, return ``?`` and its type."""
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"
