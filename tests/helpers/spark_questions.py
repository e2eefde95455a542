"""What Spark is asked and `spark_answers` records: rows, conditions on them, settings of the session."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from tests.helpers import function_conditions, pushed_filters, typed_filters, zoned_conditions

__all__ = ["FUNCTION_BATCHES", "FUNCTION_ZONES", "PLAIN", "QUESTIONS", "Question", "functions_name", "zone_name"]

#: Zones of the conditions with functions.
FUNCTION_ZONES: Final = ("UTC", "America/New_York", "America/Goose_Bay")
#: Sets of rows and conditions with functions for each zone.
FUNCTION_BATCHES: Final = range(4)
#: Spark compiles no expression, and does not turn a cast to a date into a range: it does so, too, where the clocks pass
#: midnight twice, and then selects wrong rows.
PLAIN: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.UnwrapCastInBinaryComparison",
}


@dataclass(frozen=True)
class Question:
    """Rows, conditions in SQL, and the settings of the session that answers them."""

    rows: pa.Table
    conditions: list[str]
    zone: str
    settings: Mapping[str, str]


def _about_types() -> Question:
    return Question(typed_filters.typed_rows(), typed_filters.FILTERS, typed_filters.ZONE, {})


def _about_pushed_filters() -> Question:
    return Question(pushed_filters.stored_rows(), pushed_filters.CONDITIONS, "UTC", {})


def _about_zone(zone: str) -> Question:
    """Return conditions on times near changes of clocks."""
    texts = [*zoned_conditions.HARD, *zoned_conditions.SKIPPED_DAY, *zoned_conditions.conditions(100, seed=len(zone))]
    return Question(zoned_conditions.rows(), texts, zone, {})


def _about_functions(zone: str, batch: int) -> Question:
    """Return random rows and random conditions with functions."""
    chance = random.Random(f"{zone} {batch}")
    rows = function_conditions.rows(chance)
    return Question(rows, [function_conditions.condition(chance) for _ in range(80)], zone, PLAIN)


def zone_name(zone: str) -> str:
    """Return the name of the record about a zone."""
    return f"zone_{_name(zone)}"


def functions_name(zone: str, batch: int) -> str:
    """Return the name of a record about functions."""
    return f"functions_{_name(zone)}_{batch}"


def _name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in text.replace("-", "minus_")).lower()


#: Name of a record -> what it answers.
QUESTIONS: Final[Mapping[str, Callable[[], Question]]] = {
    "types": _about_types,
    "pushed_filters": _about_pushed_filters,
    **{zone_name(zone): partial(_about_zone, zone) for zone in zoned_conditions.ZONES},
    **{
        functions_name(zone, batch): partial(_about_functions, zone, batch)
        for zone in FUNCTION_ZONES
        for batch in FUNCTION_BATCHES
    },
}
