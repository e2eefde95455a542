"""Conditions whose time zone is not known yet: wide enough for every zone, and narrow enough to skip files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError
from lakeformat.model.zones import time_zone
from lakeformat.predicate import ZonedCondition, mask, zoned_condition
from tests.helpers.zoned_conditions import SCHEMA, ZONES, conditions, rows


def _zoned(text: str) -> ZonedCondition | None:
    try:
        return zoned_condition(text, SCHEMA)
    except InvalidInputError:
        return None


def _ids(condition: ZonedCondition, zone: str, table: pa.Table) -> set[int]:
    return set(table.filter(mask(condition.bind_zone(zone), table))["id"].to_pylist())


def test_widened_condition_selects_the_rows_of_every_zone() -> None:
    table = rows(200, seed=7)
    texts = ["day = timestamp '2011-12-30 00:00:00'", "day <= timestamp '2011-12-30 00:00:00'"]
    zoned = [found for text in [*texts, *conditions(120, seed=3)] if (found := _zoned(text)) is not None]
    assert len(zoned) > 40
    narrow = 0
    for condition in zoned:
        wide = set(table.filter(mask(condition.wide, table))["id"].to_pylist())
        narrow += len(wide) < table.num_rows
        for zone in (*ZONES, "+18:00", "-18:00"):
            assert _ids(condition, zone, table) <= wide, condition.predicate
    assert narrow > 15


@pytest.mark.parametrize(
    "text", ["n = 3", "at > '2024-01-01 00:00:00Z'", "wall > '2024-01-01'", "day = '2024-01-01' or at is null"]
)
def test_condition_independent_of_the_zone_is_not_zoned(text: str) -> None:
    assert zoned_condition(text, SCHEMA) is None


@pytest.mark.parametrize(
    ("name", "same"),
    [("GMT+8", "+08:00"), ("UTC-0330", "-03:30"), ("+5", "+05:00"), ("EST", "-05:00"), ("PST", "America/Los_Angeles")],
)
def test_zone_names_are_those_of_java(name: str, same: str) -> None:
    assert time_zone(name) == time_zone(same)


def test_plain_python_takes_the_zone_as_an_argument_and_as_an_option(tmp_path: Path) -> None:
    lakeformat.create(tmp_path, SCHEMA, record_key="id").insert(rows())
    table, there = lakeformat.open(tmp_path), lakeformat.open(tmp_path, time_zone="Asia/Kathmandu")
    text = "at >= '2024-03-10' and at < '2024-03-11'"
    near, far = table.count(text), table.count(text, time_zone="Asia/Kathmandu")
    assert near != far
    assert there.count(text) == far == len(there.read(where=text).to_arrow()) == there.changes("000").count(text)
    assert there.count(text, time_zone="UTC") == near
    assert table.changes("000").count(text, time_zone="Asia/Kathmandu") == far
    assert table.update({"text": "seen"}, text, time_zone="Asia/Kathmandu").rows.updated == far
    assert there.delete(where=text).rows.deleted == far
    for zone in ("Mars/Olympus", 5):
        with pytest.raises(InvalidOptionError, match="time"):
            table.delete(where=text, time_zone=zone)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="time_zone"):
        lakeformat.open(tmp_path, time_zone="Mars/Olympus")
