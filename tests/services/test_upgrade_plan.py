"""How the timeline's files move to another layout, and which completion times they get."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from lakeformat.config.resolve import resolve
from lakeformat.errors import InvalidOptionError
from lakeformat.model import table_config as names
from lakeformat.model.table_config import TableConfig
from lakeformat.services.upgrade.plan import convert_properties, list_moves, make_completion_times
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2
from lakeformat.write.plan.table_settings import key_settings
from tests.helpers.new_tables import CASES, TYPES, case_options
from tests.helpers.short_timelines import hour, instant
from tests.write.test_new_table_properties import make_properties


def test_completion_time_lies_between_the_instant_and_the_next() -> None:
    copied = {hour(1): hour(9), hour(2): hour(2), hour(3): hour(5)}
    assert make_completion_times(copied) == {
        hour(1): "20260101015959999",
        hour(2): "20260101020000001",
        hour(3): hour(5),
    }
    dense = ["20260101000000000", "20260101000000001", "20260101000000002"]
    assert make_completion_times(dict.fromkeys(dense, hour(5))) == {
        dense[0]: dense[1],
        dense[1]: dense[2],
        dense[2]: hour(5),
    }
    close = {"20260101000000100": hour(5), "20260101000000300": hour(5)}
    assert make_completion_times(close)["20260101000000100"] == "20260101000000299"
    seconds = {"20260101000000": hour(5), "20251231235950": hour(5)}
    assert make_completion_times(seconds)["20251231235950"] == "20251231235959999"
    assert make_completion_times({}) == {}


def test_files_of_an_instant_move_together_the_completed_one_last() -> None:
    words = ["c2", "c2!", "c2?", "r1?", "r1!", "c0"]
    moves = list_moves(
        map(instant, words), LAYOUT_2, clusterings=[hour(1)], completed_at={hour(0): hour(1), hour(2): hour(3)}
    )
    assert [(move.old, move.new) for move in moves] == [
        (instant("c0"), instant("c0-1")),
        (instant("r1?"), instant("g1?")),
        (instant("r1!"), instant("g1!")),
        (instant("c2?"), instant("c2?")),
        (instant("c2!"), instant("c2!")),
        (instant("c2"), instant("c2-3")),
    ]


def test_only_clusterings_get_the_action_of_the_other_layout() -> None:
    old = ["g1?", "r2?", "c3?", "r4-5"]
    back = list_moves(map(instant, old), LAYOUT_1)
    assert [move.new for move in back] == list(map(instant, ["r1?", "r2?", "c3?", "r4"]))
    there = list_moves(map(instant, ["r2?", "c3?"]), LAYOUT_2, clusterings=[hour(3)])
    assert [move.new for move in there] == list(map(instant, ["r2?", "c3?"]))


#: Properties that a table keeps if it has them: it has begun with them, or its folders do not move. Version 6 ignores
#: those that only later versions know.
KEPT = (
    names.INITIAL_VERSION,
    names.ARCHIVE_FOLDER,
    names.HISTORY_PATH,
    names.TIMELINE_PATH,
    names.EXTRACTOR,
    "hoodie.table.format",
    "hoodie.table.multiple.base.file.formats.enable",
)
#: Cases whose generator is chosen again -> the reason.
OTHER_GENERATOR = {
    "not partitioned, custom": "without fields it is that of a table that is not partitioned",
    "not partitioned, complex": "the form of a key of one field stays as it is; see test_new_table_properties.py",
    "complex, one key": "as above",
    "complex, one key named": "as above",
    "complex, hive style": "as above",
}


def of_a_moved_table(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a table that moves to the version of a new table with the same options."""
    moved = {**with_older_name(new), **{key: old[key] for key in KEPT if key in old}}
    if old[names.VERSION] == "6":
        moved[names.INITIAL_VERSION] = "6"
    if new[names.VERSION] == "9" and names.PAYLOAD in old:
        moved[names.LEGACY_PAYLOAD] = old[names.PAYLOAD]  # For the way back.
    return moved


def with_older_name(values: Mapping[str, str]) -> dict[str, str]:
    """Rename the ordering columns in version 8: Hudi's upgrade gives them the newer name at version 9."""
    is_8 = values[names.VERSION] == "8"
    return {names.ORDERING if is_8 and key == names.ORDERING_1X else key: text for key, text in values.items()}


@pytest.mark.parametrize("case", [case for case in CASES if case not in OTHER_GENERATOR])
def test_moved_table_has_the_properties_of_a_new_one_and_gets_the_old_ones_back(case: str) -> None:
    for table_type, (version, to) in itertools.product(TYPES, itertools.permutations("689", 2)):
        try:
            old, new = (make_properties(case, each, table_type) for each in (version, to))
        except InvalidOptionError:
            continue  # One of the versions has no such tables.
        keys = key_settings(TableConfig(old), resolve(case_options(case, version, table_type)))
        moved = convert_properties(TableConfig(old), int(to), keys)
        assert moved == of_a_moved_table(old, new), (table_type, version, to)
        back = convert_properties(TableConfig(moved), int(version), key_settings(TableConfig(moved), resolve({})))
        assert with_older_name(old).items() <= back.items(), (table_type, version, to)
