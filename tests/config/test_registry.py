"""The registry of options: each name has one meaning, and the documentation agrees with the code."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakeformat.config.hudi_support import OPTIONS_BEGIN, OPTIONS_END
from lakeformat.config.option import Effect, Option
from lakeformat.config.registry import OPTIONS, options_table
from lakeformat.config.resolve import resolve

PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def names(option: Option) -> tuple[str, ...]:
    return (option.key, *option.aliases)


def test_every_name_means_one_option() -> None:
    times = Counter(name.lower() for option in OPTIONS for name in names(option))
    assert [name for name, count in times.items() if count > 1] == []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_an_option_describes_itself(option: Option) -> None:
    assert option.doc.endswith(".")
    assert "|" not in option.doc
    assert option.doc[0].isupper() or option.doc.split()[0].strip(",").islower()
    assert isinstance(option.effect, Effect)
    for name in names(option):
        assert re.fullmatch(r"[a-z0-9_.]+", name), name


def spell_default(value: Any) -> str:
    """Return a default as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_default_is_a_valid_value(option: Option) -> None:
    if option.default is not None:
        assert option.parse(spell_default(option.default)) == option.default
    assert resolve({})[option.key] == option.default
    for name in names(option):
        assert resolve({})[name] == option.default


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.default is not None], ids=lambda o: o.key)
def test_every_alias_in_any_case_sets_the_option(option: Option) -> None:
    text = spell_default(option.default)
    for name in names(option):
        for said in (name, name.upper(), name.title()):
            options = resolve({said: text})
            assert options.is_set(option.key)
            assert options[option.key] == option.default


def test_values_are_accepted_as_text_number_flag_and_list() -> None:
    options = resolve(
        {
            "hive_style": True,
            "hoodie.parquet.max.file.size": 5,
            "recordkey": ["a", "b"],
            "partitionpath": " a , ,b ",
            "where": None,
            "OPERATION": " Bulk_Insert ",
        }
    )
    assert options["hoodie.datasource.write.hive_style_partitioning"] is True
    assert options["hoodie.parquet.max.file.size"] == 5
    assert options["hoodie.datasource.write.recordkey.field"] == ("a", "b")
    assert options["hoodie.datasource.write.partitionpath.field"] == ("a", "b")
    assert not options.is_set("where")
    assert options["hoodie.datasource.write.operation"] == "bulk_insert"


def test_a_read_optimized_query_of_a_copy_on_write_table_is_a_snapshot() -> None:
    options = resolve({"hoodie.datasource.view.type": "READ_OPTIMIZED"}, effects=[Effect.READ])
    assert options["hoodie.datasource.query.type"] == "read_optimized"


def test_only_options_of_the_wanted_kind_are_read() -> None:
    options = resolve({"where": "a > 1", "operation": "insert"}, effects=[Effect.READ])
    assert options["where"] == "a > 1"
    assert not options.is_set("hoodie.datasource.write.operation")


def test_marked_options_and_those_of_the_timestamp_generator_are_kept_apart() -> None:
    options = resolve({"_job": "nightly", "Hoodie.Keygen.Timebased.Timezone": "UTC"})
    assert options.extra_metadata == {"_job": "nightly"}
    assert options.timestamp == {"hoodie.keygen.timebased.timezone": "UTC"}
    prefixed = resolve({"hoodie.datasource.write.commitmeta.key.prefix": "meta.", "meta.job": "x"})
    assert prefixed.extra_metadata == {"meta.job": "x"}
    assert resolve({"hoodie.datasource.write.commitmeta.key.prefix": "Meta.", "Meta.job": "x"}).extra_metadata


@pytest.mark.parametrize("text", ["z-order", "zorder", "Z_ORDER", "ZORDER"])
def test_every_spelling_of_z_order_is_one(text: str) -> None:
    option = "hoodie.layout.optimize.strategy"
    assert resolve({option: text})[option] == "z-order"


def test_option_table_lists_every_option_once() -> None:
    lines = options_table().splitlines()
    assert len(lines) == len(OPTIONS) + 2
    assert {line.count("|") for line in lines} == {5}
    assert [line.split("`")[1] for line in lines[2:]] == [option.key for option in OPTIONS]


def test_page_has_the_generated_option_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = text.split(OPTIONS_BEGIN)[1].split(OPTIONS_END)[0].strip().splitlines()
    wanted = options_table().strip().splitlines()
    assert not list(difflib.unified_diff(shown, wanted, "options.md", "options_table()", lineterm=""))
