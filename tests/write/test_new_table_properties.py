"""New tables have the properties that Apache Hudi 0.15.0 and 1.2.0 give them, and need no option a second time.

``hudi_properties.json`` holds what Hudi stores for the cases of `tests.helpers.new_tables`, which interop tests ask it
again. `MEANT` lists every difference with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import lakeformat
from lakeformat.codec import properties
from lakeformat.config.resolve import resolve
from lakeformat.errors import InvalidOptionError, UnsupportedTableError
from lakeformat.model.keys import KeyGeneratorKind
from lakeformat.model.table_config import PROPERTIES_PATH, TableConfig
from lakeformat.write.plan.table_settings import key_settings, new_table_values
from tests.helpers.new_tables import (
    CASES,
    KEY,
    KEY_GENERATORS,
    PARTITIONS,
    RELEASES,
    SCHEMA,
    TYPES,
    case_options,
    recorded,
    rows,
    section_name,
)

HUDI: Final = recorded()
TIME: Final = "hoodie.keygen.timebased."
#: Hudi 1.x's key of the ordering columns -> that of 0.15, which our tables of version 6 have; the same of generators.
ORDERING: Final = ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")
GENERATOR: Final = ("hoodie.table.keygenerator.type", "hoodie.table.keygenerator.class")


@dataclass(frozen=True)
class Meant:
    """A difference that is meant: properties, and the beginnings of the sections and cases that it occurs in."""

    reason: str
    keys: tuple[str, ...]
    sections: str = ""
    cases: tuple[str, ...] = ("",)

    def covers(self, section: str, case: str, key: str) -> bool:
        is_key = any(key == known or (known.endswith(".") and key.startswith(known)) for known in self.keys)
        return is_key and section.startswith(self.sections) and case.startswith(self.cases)


EXTRACTOR: Final = "hoodie.table.partition_extractor_class"
PAYLOAD: Final = "hoodie.compaction.payload.class"
MEANT: Final = (
    Meant("the timeline of our tables is in UTC, whatever the zone of a writer", ("hoodie.table.timeline.timezone",)),
    Meant("the columns are known before the first commit, as after create table", ("hoodie.table.create.schema",)),
    Meant("empty if there is no database, as in 0.15", ("hoodie.database.name",), "1.2.0"),
    Meant("Hudi stores the class of several partitions if no option names a partition", (EXTRACTOR,), "1.2.0, version"),
    Meant(
        "Hudi stores no settings of time for a custom generator, and asks each writer for them again",
        (TIME,),
        cases=("custom",),
    ),
    Meant(
        "Hudi does not store whether a key of one field names it, and its releases differ",
        ("hoodie.write.complex.keygen.new.encoding",),
        cases=("complex, one key", "complex, hive style", "not partitioned, complex"),
    ),
    Meant("nor the types of its fields in version 6", ("lakeformat.partition.fields",), cases=("custom",)),
    Meant(
        "Hudi forgets the type of a generator where no class is named: 1.2.0 stores SIMPLE, and 0.15 obeys no type",
        (TIME, *GENERATOR, "hoodie.table.partition.fields", "lakeformat.partition.fields"),
        cases=("timestamp, by type", "custom, by type"),
    ),
    Meant("the order that the class prescribes is stored", ORDERING, cases=("mysql",)),
    Meant(
        "0.15 lacks the type, so 1.2.0 could not read the table", (TIME + "timestamp.type",), "0.15.0", ("timestamp",)
    ),
    Meant("a rule for merging that 0.15 stores only for merge-on-read, and without ordering", (PAYLOAD,), "0.15.0"),
    Meant(
        "the marker counts for each writer, as 1.2.0 has it", ("hoodie.record.merge.property.",), "0.15.0", ("marker",)
    ),
    Meant("follows from the payload class", ("hoodie.compaction.record.merger.strategy",), "0.15.0"),
    Meant("follows from the payload class", ("hoodie.record.merge.strategy.id",), "1.2.0, version 6"),
    Meant(
        "0.15 knows only the older folders and no table format",
        ("hoodie.archivelog.folder", "hoodie.table.format", "hoodie.timeline.path", "hoodie.timeline.history.path"),
        "1.2.0, version 6",
    ),
)
#: Cases that only we refuse -> the reason.
REFUSED: Final = {
    "not partitioned, with a partition": "Hudi ignores the partition field",
    "two orderings": "several columns order rows from version 9 on",
    "complex, one key alone": "Hudi ignores the option from version 9 on",
}


def make_properties(case: str, version: str, table_type: str) -> Mapping[str, str]:
    """Return the properties of our new table of a case. Raise the errors of ``lakeformat.create``."""
    options = resolve(case_options(case, version, table_type))
    values = new_table_values(options, SCHEMA, "t")
    key_settings(TableConfig(values), options)
    return values


def with_older_keys(stored: Mapping[str, str]) -> dict[str, str]:
    """Return Hudi 1.x's properties of a version 6 table under the keys of 0.15."""
    classes = {kind.type_name: kind.class_name for kind in KeyGeneratorKind}
    renamed = dict(stored)
    if (ordering := renamed.pop(ORDERING[0], None)) is not None:
        renamed[ORDERING[1]] = ordering
    if (kind := renamed.pop(GENERATOR[0], None)) is not None:
        renamed[GENERATOR[1]] = classes[kind]
    return renamed


def split_section(section: str) -> tuple[str, str, str]:
    release, version, table_type = section.split(", ")
    return release, version.removeprefix("version "), table_type


def differing_keys(section: str, case: str) -> set[str] | None:
    """Return the keys of our and Hudi's properties that differ; None if one of both refuses the table."""
    _, version, table_type = split_section(section)
    theirs = HUDI[section][case]
    try:
        ours = make_properties(case, version, table_type)
    except InvalidOptionError:
        assert isinstance(theirs, str) or case in REFUSED
        return None
    assert not isinstance(theirs, str), f"Hudi refuses it: {theirs}"
    theirs = with_older_keys(theirs) if version == "6" else theirs
    return {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}


def test_every_case_is_recorded() -> None:
    assert [*HUDI] == [section_name(*release, kind) for release in RELEASES for kind in TYPES]
    assert all([*cases] == [*CASES] for cases in HUDI.values())


@pytest.mark.parametrize("section", HUDI)
def test_properties_of_new_tables_are_hudis(section: str) -> None:
    for case in CASES:
        for key in differing_keys(section, case) or ():
            assert any(meant.covers(section, case, key) for meant in MEANT), (case, key)


def test_every_difference_that_is_meant_occurs() -> None:
    found = [(section, case, key) for section in HUDI for case in CASES for key in differing_keys(section, case) or ()]
    assert [meant.reason for meant in MEANT if not any(meant.covers(*place) for place in found)] == []


@pytest.mark.parametrize("version", ["6", *(pytest.param(version, marks=pytest.mark.nightly) for version in "89")])
@pytest.mark.parametrize("case", [case for case, given in KEY_GENERATORS.items() if given.get(KEY, "") is not None])
def test_a_new_table_needs_no_option_again(case: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    try:
        lakeformat.create(path, SCHEMA, **case_options(case, version, "COPY_ON_WRITE"))
    except InvalidOptionError:
        return
    lakeformat.open(path).upsert(rows())
    lakeformat.open(path).upsert(rows(v=2))
    assert lakeformat.open(path).to_arrow()["v"].to_pylist() == [2]


TIMED: Final = case_options("timestamp, millis", "6", "COPY_ON_WRITE")
CUSTOM: Final = case_options("custom", "6", "COPY_ON_WRITE")


def remove_properties(path: Path, *beginnings: str) -> None:
    """Make the table one of Hudi 0.15.0, or of an older lakeformat, which store fewer properties."""
    file = path / PROPERTIES_PATH
    values = properties.decode(file.read_bytes(), name=PROPERTIES_PATH)
    kept = {key: text for key, text in values.items() if not key.startswith(beginnings)}
    file.write_bytes(properties.encode(kept, comments=[]))


@pytest.mark.parametrize(("options", "lost"), [(TIMED, (f"{TIME}timestamp.type",)), (CUSTOM, (TIME, "lakeformat."))])
def test_properties_that_a_table_lacks_are_added_by_its_next_write(
    options: Mapping[str, str], lost: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "t"
    lakeformat.create(path, SCHEMA, **options).upsert(rows())
    whole = lakeformat.open(path).config.values
    remove_properties(path, *lost)
    with pytest.raises(InvalidOptionError, match="set "):
        lakeformat.open(path).upsert(rows(v=2))
    given = {key: text for key, text in options.items() if key.startswith((TIME, PARTITIONS))}
    lakeformat.open(path, **given).upsert(rows(v=3))
    assert lakeformat.open(path).config.values == whole
    lakeformat.open(path).upsert(rows(v=4))
    assert lakeformat.open(path).to_arrow()["v"].to_pylist() == [4]


def test_settings_that_do_not_fit_the_stored_rows_are_not_added(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lakeformat.create(path, SCHEMA, **TIMED).upsert(rows())
    remove_properties(path, f"{TIME}timestamp.type")
    before = (path / PROPERTIES_PATH).read_bytes()
    with pytest.raises(InvalidOptionError, match=r"put the rows of 2024-04-13/.* into '1970-01-20'"):
        lakeformat.open(
            path, **{f"{TIME}timestamp.type": "SCALAR", f"{TIME}timestamp.scalar.time.unit": "MICROSECONDS"}
        ).upsert(rows(v=2))
    assert (path / PROPERTIES_PATH).read_bytes() == before
    assert lakeformat.open(path).count() == 1


@pytest.mark.parametrize(("version", "key"), [("6", "1"), ("8", "1"), ("9", "id:1")])
def test_complex_key_of_one_field_is_spelled_as_in_hudi(version: str, key: str, tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", SCHEMA, **case_options("complex, one key", version, "COPY_ON_WRITE"))
    table = lakeformat.open(tmp_path / "t")
    table.upsert(rows())
    assert table.to_arrow(meta_columns=True)["_hoodie_record_key"].to_pylist() == [key]
    if version != "9":
        with pytest.raises(UnsupportedTableError, match="would write rows twice"):
            table.upgrade(9)
        assert lakeformat.open(tmp_path / "t").config.version == int(version)
