"""New tables by the options that decide ``hoodie.properties``: the same options make a table of Hudi and one of ours.

``tests/fixtures/hudi_properties.json`` holds what each Hudi stores for each case, or its refusal. `record` asks Hudi
for it. ``python -m tests.helpers.new_tables`` writes the file again, from the project's root after ``make interop``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from tests.helpers.fixture_tables import FIXTURES
from tests.helpers.hudi_spark import Hudi, HudiError, table_properties
from tests.helpers.tables import a_schema

FILE: Final = FIXTURES / "hudi_properties.json"
Stored = Mapping[str, str]
Given = Mapping[str, str | None]

#: Pairs of a Hudi version and the table version that it is asked for.
RELEASES: Final = (("0.15.0", "6"), ("1.2.0", "6"), ("1.2.0", "8"), ("1.2.0", "9"))
TYPES: Final = ("COPY_ON_WRITE", "MERGE_ON_READ")

W: Final = "hoodie.datasource.write."
T: Final = "hoodie.keygen.timebased."
OLD_T: Final = "hoodie.deltastreamer.keygen.timebased."
#: Options of Hudi that no property shows: without metadata table, and without its warning about keys of older releases.
UNMEASURED: Final = {"hoodie.metadata.enable": "false", "hoodie.write.complex.keygen.validation.enable": "false"}
KEY: Final = W + "recordkey.field"
PARTITIONS: Final = W + "partitionpath.field"
ORDERING: Final = W + "precombine.field"
PAYLOAD: Final = W + "payload.class"
NEW_ENCODING: Final = "hoodie.write.complex.keygen.new.encoding"
_CLASS: Final = W + "keygenerator.class"
_PAYLOADS: Final = "org.apache.hudi.common.model."
SCHEMA: Final = a_schema(
    id="int64", b="string", reg="string", day="string", ts="int64", v="int64", Op="string",
    _change_operation_type="string", _event_lsn="int64", _event_bin_file="string", _event_pos="int64",
    _event_seq="string",
)  # fmt: skip
ROW: Final = {
    "id": 1, "b": "x", "reg": "eu", "day": "2024-04-13", "ts": 1_713_033_644_000, "v": 1, "Op": "I",
    "_change_operation_type": "c", "_event_lsn": 7, "_event_bin_file": "0000000001", "_event_pos": 9,
    "_event_seq": "0000000001.9",
}  # fmt: skip


def _generator(name: str) -> dict[str, str]:
    return {_CLASS: f"org.apache.hudi.keygen.{name}KeyGenerator"}


def _timed(kind: str, **more: str) -> dict[str, str]:
    return {T + "timestamp.type": kind, T + "output.dateformat": "yyyy-MM-dd", **{T + k: v for k, v in more.items()}}


_MILLIS: Final = _timed("EPOCHMILLISECONDS", timezone="UTC")
#: Hudi casts the folders of a custom generator to the column's type, here a number, and fails on other texts.
_DIGITS: Final = {**_MILLIS, T + "output.dateformat": "yyyyMMdd"}
_BY_TIME: Final = {PARTITIONS: "ts", **_generator("TimestampBased")}
_BY_DAY: Final = {PARTITIONS: "day", **_generator("TimestampBased")}
_TEXTS: Final = {"input.dateformat": "yyyy-MM-dd", "input.timezone": "UTC", "output.timezone": "Europe/Paris"}

#: Options of a case beside a record key ``id`` and an ordering column ``ts``; None removes one of these.
KEY_GENERATORS: Final[Mapping[str, Given]] = {
    "not partitioned": {},
    "not partitioned, said so": {PARTITIONS: ""},
    "not partitioned, two keys": {KEY: "id,b"},
    "not partitioned, by class": _generator("Nonpartitioned"),
    "not partitioned, simple": {PARTITIONS: "", **_generator("Simple")},
    "not partitioned, complex": {PARTITIONS: "", **_generator("Complex")},
    "not partitioned, complex, two keys": {PARTITIONS: "", KEY: "id,b", **_generator("Complex")},
    "not partitioned, custom": {PARTITIONS: "", **_generator("Custom")},
    "not partitioned, with a partition": {PARTITIONS: "reg", **_generator("Nonpartitioned")},
    "simple": {PARTITIONS: "reg"},
    "simple, by class": {PARTITIONS: "reg", **_generator("Simple")},
    "simple, by type": {PARTITIONS: "reg", W + "keygenerator.type": "SIMPLE"},
    "simple, hive style and encoded": {
        PARTITIONS: "reg", W + "hive_style_partitioning": "true", W + "partitionpath.urlencode": "true",
    },
    "simple, two partitions": {PARTITIONS: "reg,b", **_generator("Simple")},
    "simple, settings of time": {PARTITIONS: "reg", **_MILLIS},
    "simple, two keys": {PARTITIONS: "reg", KEY: "id,b", **_generator("Simple")},
    "complex": {PARTITIONS: "reg,b", KEY: "id,b"},
    "complex, hive style": {PARTITIONS: "reg,b", W + "hive_style_partitioning": "true"},
    "complex, one partition": {PARTITIONS: "reg", KEY: "id,b"},
    "complex, one key": {PARTITIONS: "reg", **_generator("Complex")},
    "complex, one key named": {PARTITIONS: "reg", **_generator("Complex"), NEW_ENCODING: "false"},
    "complex, one key alone": {PARTITIONS: "reg", **_generator("Complex"), NEW_ENCODING: "true"},
    "no key": {KEY: None, ORDERING: None, W + "operation": "insert"},
    "no key, partitioned": {KEY: None, ORDERING: None, PARTITIONS: "reg", W + "operation": "insert"},
    "timestamp, millis": {**_BY_TIME, **_MILLIS},
    "timestamp, by type": {PARTITIONS: "ts", W + "keygenerator.type": "TIMESTAMP", **_MILLIS},
    "timestamp, no zone": {**_BY_TIME, **_timed("EPOCHMILLISECONDS")},
    "timestamp, slashes": {**_BY_TIME, **_MILLIS, T + "output.dateformat": "yyyy/MM/dd"},
    "timestamp, hive style": {**_BY_TIME, **_MILLIS, W + "hive_style_partitioning": "true"},
    "timestamp, seconds": {**_BY_TIME, PARTITIONS: "_event_pos", **_timed("UNIX_TIMESTAMP", timezone="GMT")},
    "timestamp, scalar": {**_BY_TIME, **_timed("SCALAR"), T + "timestamp.scalar.time.unit": "MILLISECONDS"},
    "timestamp, texts": {**_BY_DAY, **_timed("DATE_STRING"), **{T + name: text for name, text in _TEXTS.items()}},
    "timestamp, mixed": {
        **_BY_DAY, **_timed("MIXED"), T + "input.dateformat": "yyyy-MM-dd;yyyy/MM/dd",
        T + "input.dateformat.list.delimiter.regex": ";",
    },
    "timestamp, older names": {**_BY_TIME, **{name.replace(T, OLD_T): text for name, text in _MILLIS.items()}},
    "timestamp, two keys": {**_BY_TIME, **_MILLIS, KEY: "id,b"},
    "custom": {PARTITIONS: "reg:SIMPLE,ts:TIMESTAMP", **_generator("Custom"), **_DIGITS},
    "custom, by type": {PARTITIONS: "reg:SIMPLE,ts:TIMESTAMP", W + "keygenerator.type": "CUSTOM", **_DIGITS},
    "custom, simple": {PARTITIONS: "reg:SIMPLE", **_generator("Custom")},
    "custom, two simple": {PARTITIONS: "reg:SIMPLE,b:SIMPLE", KEY: "id,b", **_generator("Custom")},
    "custom, time": {PARTITIONS: "ts:TIMESTAMP", **_generator("Custom"), **_DIGITS},
}  # fmt: skip

MERGE_RULES: Final[Mapping[str, Given]] = {
    "no ordering": {ORDERING: None},
    "two orderings": {ORDERING: "ts,v"},
    "commit time": {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"},
    "event time": {"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"},
    "latest": {ORDERING: None, PAYLOAD: f"{_PAYLOADS}OverwriteWithLatestAvroPayload"},
    "latest with ordering": {PAYLOAD: f"{_PAYLOADS}OverwriteWithLatestAvroPayload"},
    "default": {PAYLOAD: f"{_PAYLOADS}DefaultHoodieRecordPayload"},
    "event time payload": {PAYLOAD: f"{_PAYLOADS}EventTimeAvroPayload"},
    "partial": {PAYLOAD: f"{_PAYLOADS}PartialUpdateAvroPayload"},
    "not defaults": {PAYLOAD: f"{_PAYLOADS}OverwriteNonDefaultsWithLatestAvroPayload"},
    "aws dms": {PAYLOAD: f"{_PAYLOADS}AWSDmsAvroPayload"},
    "postgres": {ORDERING: "_event_lsn", PAYLOAD: f"{_PAYLOADS}debezium.PostgresDebeziumAvroPayload"},
    "mysql": {ORDERING: None, PAYLOAD: f"{_PAYLOADS}debezium.MySqlDebeziumAvroPayload"},
    "marker": {
        PAYLOAD: f"{_PAYLOADS}DefaultHoodieRecordPayload",
        "hoodie.payload.delete.field": "b",
        "hoodie.payload.delete.marker": "D",
    },
}
OTHERS: Final[Mapping[str, Given]] = {
    "database": {"hoodie.database.name": "db"},
    "changes": {"hoodie.table.cdc.enabled": "true"},
    "changes, before": {
        "hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": "DATA_BEFORE",
    },
    "changes, keys": {
        "hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": "OP_KEY_ONLY",
    },
}  # fmt: skip
CASES: Final[Mapping[str, Given]] = {**KEY_GENERATORS, **MERGE_RULES, **OTHERS}


def case_options(case: str, version: str, table_type: str) -> dict[str, str]:
    """Return all options of a new table of this case, under Hudi's names, for Hudi and for lakeformat."""
    given = {KEY: "id", ORDERING: "ts", W + "operation": "upsert", W + "table.type": table_type, **CASES[case]}
    given |= {"hoodie.table.name": "t", "hoodie.write.table.version": version}
    return {name: text for name, text in given.items() if text is not None}


def section_name(release: str, version: str, table_type: str) -> str:
    return f"{release}, version {version}, {table_type}"


def ask(hudi: Hudi, case: str, version: str, table_type: str, folder: Path) -> Stored | str:
    """Return the properties that Hudi stores for a new table without rows, or the first line of its refusal."""
    path = folder / "t"
    options = {**case_options(case, version, table_type), **UNMEASURED}
    if hudi.version < "1":
        del options["hoodie.write.table.version"]
    try:
        hudi.write(path, SCHEMA.empty_table(), "insert", **{**options, W + "operation": "insert"})
    except HudiError as error:
        return str(error).splitlines()[-1].rpartition("Exception: ")[2][:90]
    return table_properties(path)


def record(hudi: Hudi, version: str, table_type: str, cases: Iterable[str] = tuple(CASES)) -> dict[str, Stored | str]:
    """Return what `ask` returns for each case."""
    answers = {}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            answers[case] = ask(hudi, case, version, table_type, Path(folder))
    return answers


def pack(answers: Mapping[str, Stored | str]) -> dict[str, object]:
    """Return the answers in a short form: each key's most frequent value once, and what differs in each case."""
    found = {case: stored for case, stored in answers.items() if not isinstance(stored, str)}
    keys = sorted({key for stored in found.values() for key in stored})
    usual = {key: Counter(stored.get(key) for stored in found.values()).most_common(1)[0][0] for key in keys}
    return {
        "usual": {key: text for key, text in usual.items() if text is not None},
        "cases": {
            case: stored
            if isinstance(stored, str)
            else {key: stored.get(key) for key in keys if stored.get(key) != usual[key]}
            for case, stored in answers.items()
        },
    }


def recorded() -> dict[str, dict[str, Stored | str]]:
    """Return Hudi's properties, or its refusal, by section and case."""
    sections = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        section: {
            case: differing
            if isinstance(differing, str)
            else {key: text for key, text in {**packed["usual"], **differing}.items() if text is not None}
            for case, differing in packed["cases"].items()
        }
        for section, packed in sections.items()
    }


def rows(**changes: object) -> pa.Table:
    """Return a table of the one row `ROW`, with some values changed."""
    return pa.Table.from_pylist([{**ROW, **changes}], SCHEMA)


def main(*cases: str) -> None:
    """Ask each Hudi for these cases, by default for all, and write the fixture again."""
    known = recorded() if cases else {}
    sections = {}
    for release in dict.fromkeys(release for release, _ in RELEASES):
        with tempfile.TemporaryDirectory() as folder, Hudi(release, Path(folder)) as hudi:
            for version in (version for of, version in RELEASES if of == release):
                for table_type in TYPES:
                    section = section_name(release, version, table_type)
                    answers = {**known.get(section, {}), **record(hudi, version, table_type, cases or tuple(CASES))}
                    sections[section] = pack({case: answers[case] for case in CASES})
    FILE.write_text(json.dumps(sections, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
