"""Options that are unknown, wrong, or contradict each other or the table are refused by name, with a way out."""

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidOptionError, LakeformatError, SchemaMismatchError
from lakeformat.codec import properties
from lakeformat.config.hudi_support import AnswerKind, find_answer, hudi_names
from lakeformat.config.resolve import resolve
from lakeformat.model.table_config import PROPERTIES_PATH, TYPED_FIELDS
from tests.helpers.refusal import ROWS, SCHEMA, check_message, check_refused, new_table

W = "hoodie.datasource.write."
TIMEBASED = {
    "keygenerator": "TimestampBasedKeyGenerator",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("operatoin", "operation"),
        ("record_keys", "record_key"),
        ("as.of.instants", "as.of.instant"),
        ("lakeformat.storage.snyc", "lakeformat.storage.sync"),
        ("wehre", "where"),
        ("entirely-else", None),
        ("key", "record_key"),
        ("primary_key", "record_key"),
        ("primaryKey", "record_key"),
        ("pk", "record_key"),
        ("partitionedBy", "partition_by"),
        ("order_by", "ordering"),
        ("table_name", "name"),
        ("asOfVersion", "as.of.instant"),
        ("startingVersion", "hoodie.datasource.read.begin.instanttime"),
        ("filters", "where"),
        ("index", "hoodie.index.type"),
        ("zorder_by", "hoodie.clustering.plan.strategy.sort.columns"),
        ("uri", None),
        ("mode", None),
        ("colour", None),
        ("api", None),
        ("http", None),
    ],
)
def test_unknown_option_of_lakeformat_is_refused(name: str, meant: str | None) -> None:
    with pytest.raises(LakeformatError) as caught:
        resolve({name: "x"})
    message = check_message(caught, InvalidOptionError, repr(name), "lakeformat options")
    assert (f"did you mean {meant!r}?" in message) if meant else ("did you mean" not in message)


def test_unknown_option_of_hudi_is_ignored_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = resolve({"hoodie.parquet.max.file.sise": "1", "hoodie.parquet.max.file.size": "2"})
    assert options["hoodie.parquet.max.file.size"] == 2
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].name == "lakeformat.config"
    text = warnings[0].getMessage()
    assert "hoodie.parquet.max.file.sise is not known" in text
    assert "did you mean 'hoodie.parquet.max.file.size'?" in text


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hoodie.upsert.shufle.parallelism", "hoodie.upsert.shuffle.parallelism"),
        ("hoodie.populate.meta.field", "hoodie.populate.meta.fields"),
        (
            "hoodie.metadata.index.column.stats.max.columns.to.indx",
            "hoodie.metadata.index.column.stats.max.columns.to.index",
        ),
        ("hoodie.datasource.hive_sync.enabled", "hoodie.datasource.hive_sync.enable"),
    ],
)
def test_warning_suggests_the_nearest_option_even_if_it_has_no_effect(
    name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    resolve({name: "7"})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"did you mean {meant!r}?" in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.upsert.shuffle.parallelism",
        "hoodie.datasource.hive_sync.filter_pushdown_enabled",
        "hoodie.metadata.metrics.enable",
        "hoodie.write.lock.num_retries",
        "path",
        "fs.s3a.endpoint",
        "spark.x",
    ],
)
def test_options_of_other_programs_are_ignored_silently(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert resolve({name: "7"}).values == {}
    assert caplog.records == []


ROLES = {
    f"{W}recordkey.field": [
        f"{W}recordkey.fields", f"{W}recordkey.fileds", f"{W}recrodkey.field", f"{W}record.key.field",
        "hoodie.table.recordkey.field", "Hoodie.DataSource.Write.RecordKey",
    ],
    f"{W}partitionpath.field": [
        f"{W}partitionpath.fields", f"{W}partition.path.field", f"{W}partitionpth.field", f"{W}partition.field",
        "hoodie.table.partition.field",
    ],
    "hoodie.table.ordering.fields": [
        f"{W}precombine.fields", f"{W}precombine.key", f"{W}pre_combine.field", f"{W}ordering.fields",
        "hoodie.table.ordering.field", "hoodie.payload.ordering.fields",
    ],
}  # fmt: skip
LOOKALIKES = [(key, name) for key, names in ROLES.items() for name in names]


@pytest.mark.parametrize(("key", "name"), LOOKALIKES, ids=lambda text: text)
def test_misspelt_role_option_is_refused_at_creation(
    key: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = {other: "id" for other in ROLES if other != key}
    with pytest.raises(LakeformatError) as caught:
        lakeformat.create(tmp_path / "t", SCHEMA, **others, **{name: "id"})
    check_message(caught, InvalidOptionError, f"option {name.lower()} is not known", f"did you mean {key!r}?")
    assert not (tmp_path / "t").exists()
    assert caplog.records == []
    resolve({**others, key: "id", name: "id"})
    assert f"{name.lower()} is not known and has no effect" in caplog.text


@pytest.mark.parametrize(
    "name", ["hoodie.keygen.timebased.input.timezon", "hoodie.deltastreamer.keygen.timebased.zone"]
)
def test_misspelt_option_that_decides_folders_is_refused(name: str) -> None:
    with pytest.raises(LakeformatError) as caught:
        resolve({name: "UTC"})
    check_message(caught, InvalidOptionError, f"unknown option {name!r}", "did you mean 'hoodie.")


def test_suggestion_is_never_an_unrelated_option(caplog: pytest.LogCaptureFixture) -> None:
    """An option that Hudi does not have is called unknown. Only similar names are suggested."""
    accepted = {AnswerKind.IGNORED, AnswerKind.WARNED}
    resolve({name: "false" for name in hudi_names() if find_answer(name).kind in accepted})
    assert caplog.records == []
    resolve({"hoodie.write.quorum": "1", "hoodie.datasource.write.colour": "1", "hoodie.parquet.tint": "1"})
    assert len(caplog.records) == 3
    assert all(record.getMessage().endswith("is not known and has no effect") for record in caplog.records)


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("operation", "merge", "write one of upsert, insert"),
        ("hive_style", "yes", "write true or false"),
        ("hoodie.parquet.max.file.size", "120MB", "write a whole number from 0 up"),
        ("hoodie.parquet.max.file.size", "-1", "from 0 up"),
        ("hoodie.parquet.max.file.size", "1.5", "write a whole number from 0 up"),
        ("hoodie.index.bloom.fpp", "1 %", "between 0 and 1"),
        ("hoodie.index.bloom.fpp", "0", "between 0 and 1"),
        ("hoodie.index.bloom.fpp", "1", "between 0 and 1"),
        ("hoodie.index.bloom.fpp", "nan", "between 0 and 1"),
        ("hoodie.index.type", "HBASE", "AUTO, BLOOM, SIMPLE"),
        ("hoodie.index.type", "RECORD_LEVEL_INDEX", "a record index for each partition is not supported"),
        ("hoodie.parquet.compression.codec", "lzo", "zstd, snappy, gzip"),
        ("table_type", "MERGE_SOMETIMES", "write one of COPY_ON_WRITE, MERGE_ON_READ"),
        ("hoodie.write.table.version", "7", "write one of 6"),
        ("merge_mode", "NEWEST", "EVENT_TIME_ORDERING"),
        ("hoodie.datasource.query.type", "incrementally", "snapshot"),
        ("merger", "my_rules.largest", "package.module:function"),
        ("partial_update", " , ", "write true, false or the names of columns"),
        ("hoodie.bulkinsert.sort.mode", "GLOBAL", "GLOBAL_SORT"),
    ],
)
def test_bad_value_is_refused_with_advice(name: str, value: str, advice: str) -> None:
    with pytest.raises(LakeformatError) as caught:
        resolve({name: value})
    check_message(caught, InvalidOptionError, name, repr(value), advice)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hoodie.metaserver.enabled", "true"),
        ("hoodie.write.lock.provider", "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"),
        ("hoodie.datasource.write.record.merger.impls", "org.apache.hudi.HoodieSparkRecordMerger,org.example.Mine"),
        ("hoodie.datasource.write.record.merger.impls", "org.example.HoodieSparkRecordMerger"),
        ("hoodie.datasource.write.record.merger.strategy", "1897ef5f-18bc-4557-939c-9d6a8afd1519"),
        ("hoodie.clustering.plan.strategy.class", "SparkStreamCopyClusteringPlanStrategy"),
        ("hoodie.write.record.merge.custom.implementation.classes", "org.example.Merger"),
        ("hoodie.parquet.encryption.footer.key", "k"),
        ("hoodie.errortable.write.class", "org.example.ErrorTable"),
        ("hoodie.bootstrap.base.path", "/old"),
        ("hoodie.table.ro.file.format", "ORC"),
    ],
)
def test_option_that_cannot_be_honoured_is_refused(name: str, value: Any) -> None:
    with pytest.raises(LakeformatError) as caught:
        resolve({name: value})
    check_message(caught, InvalidOptionError, name, "leave it out")


def test_one_error_names_all_refused_options(tmp_path: Path) -> None:
    """A job that was written for Hudi gets one error that says how to change each of its refused options."""
    refused = {
        "hoodie.parquet.encryption.footer.key": ("k", "files are written in plain text"),
        "hoodie.prewrite.validators": ("org.example.V", "leave it out and give Python functions in"),
        "hoodie.write.lock.provider": ("org.example.Lock", "no such lock here; leave it out, or set one of"),
        "hoodie.write.concurrency.mode": ("optimistic", "write one of SINGLE_WRITER, OPTIMISTIC_CONCURRENCY_CONTROL"),
        "hoodie.parquet.max.file.size": ("120MB", "write a whole number from 0 up"),
        "hoodie.keygen.timebased.zone": ("UTC", "unknown option"),
        "key": ("id", "did you mean 'record_key'?"),
    }
    taken = {"hoodie.upsert.shuffle.parallelism": "200", "record_key": "id", "hoodie.metadata.metrics.enable": "true"}
    given = {**{name: value for name, (value, _) in refused.items()}, **taken}
    with pytest.raises(LakeformatError) as caught:
        lakeformat.create(tmp_path / "t", SCHEMA, **given)
    parts = [part for name, (_, cure) in refused.items() for part in (name, cure)]
    message = check_message(
        caught, InvalidOptionError, "7 options are refused: (1)", "(7)", "lakeformat options check", *parts
    )
    assert not any(name in message for name in taken if name != "record_key")
    assert not (tmp_path / "t").exists()


MERGERS = ",".join(f"org.apache.hudi.{name}" for name in ("HoodieSparkRecordMerger", "DefaultSparkRecordMerger"))


@pytest.mark.parametrize(
    ("strategy", "wins"),
    [
        ({}, 5),
        ({"hoodie.datasource.write.record.merger.impls": MERGERS}, 5),
        ({"hoodie.write.record.merge.strategy.id": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"}, 5),
        ({"hoodie.write.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d"}, 3),
        ({"hoodie.datasource.write.record.merger.strategy": "CE9ACB64-bde0-424c-9b91-f6ebba25356d"}, 3),
    ],
)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_hudi_mergers_map_to_built_in_merge_rules(
    version: int, strategy: dict[str, str], wins: int, tmp_path: Path
) -> None:
    schema = pa.schema({"id": pa.int64(), "ts": pa.int64()})
    settings = {"record_key": "id", "ordering": "ts", "hoodie.write.table.version": version, **strategy}
    table = lakeformat.create(tmp_path / "t", schema, **settings)
    for ts in (5, 3):
        table.upsert(pa.table([[1], [ts]], schema=schema))
    assert table.to_arrow(columns=["ts"])["ts"].to_pylist() == [wins]
    lakeformat.open(tmp_path / "t", **strategy)


def test_merge_strategy_that_contradicts_the_merge_mode_is_refused(tmp_path: Path) -> None:
    by_commit = {"hoodie.write.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d"}
    settings: dict[str, Any] = {"record_key": "id", "ordering": "ts"}
    others = ({"merge_mode": "EVENT_TIME_ORDERING"}, {f"{W}payload.class": "DefaultHoodieRecordPayload"})
    for other in others:
        with pytest.raises(InvalidOptionError, match=r"strategy\.id.* contradict each other; give one"):
            lakeformat.create(tmp_path / "t", SCHEMA, **settings, **other, **by_commit)
    lakeformat.create(tmp_path / "t", SCHEMA, **settings)
    with pytest.raises(InvalidOptionError, match=r"strategy\.id='COMMIT_TIME_ORDERING' contradicts 'EVENT_TIME"):
        lakeformat.open(tmp_path / "t", **by_commit)


@pytest.mark.parametrize(
    "options",
    [
        {"recordkey": "a", f"{W}recordkey.field": "b"},
        {"operation": "insert", "Operation": "upsert"},
        {"precombine": "a", "hoodie.table.ordering.fields": "b"},
        {"hive_style": "true", f"{W}hive_style_partitioning": "false"},
    ],
)
def test_two_names_of_one_option_with_different_values_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(LakeformatError) as caught:
        resolve(options)
    pairs = [f"{name.lower()}={value!r}" for name, value in options.items()]
    check_message(caught, InvalidOptionError, *pairs, "give one of them")


def test_two_names_of_one_option_with_one_value_are_accepted() -> None:
    options = resolve({"recordkey": "a, b", f"{W}RecordKey.Field": ["a", "b"], "hive_style": None})
    assert options[f"{W}recordkey.field"] == ("a", "b")
    assert not options.is_set(f"{W}hive_style_partitioning")


CREATIONS: list[tuple[dict[str, Any], type[LakeformatError], tuple[str, ...]]] = [
    ({"record_key": ()}, InvalidOptionError, ("needs a record key", "recordkey")),
    ({"record_key": "idd"}, SchemaMismatchError, ("'idd'", "did you mean 'id'?")),
    ({"record_key": "id.x"}, SchemaMismatchError, ("'id.x'", "add it or name another")),
    ({"partition_by": "pp"}, SchemaMismatchError, ("partition column 'pp'", "add it or name another")),
    ({"partition_by": "p:YEAR"}, InvalidOptionError, ("'p:YEAR'", "p:SIMPLE or p:TIMESTAMP")),
    ({"ordering": "t"}, SchemaMismatchError, ("ordering column 't'", "did you mean 'ts'?")),
    ({"ordering": "ts,v"}, InvalidOptionError, ("ts,v", "version 9", "name one")),
    ({"keygenerator": "UuidKeyGenerator"}, InvalidOptionError, ("'UuidKeyGenerator'", "SimpleKeyGenerator")),
    ({"keygenerator": "SimpleKeyGenerator"}, InvalidOptionError, ("exactly one partition field", "p, n")),
    ({"keygenerator": "NonpartitionedKeyGenerator"}, InvalidOptionError, ("takes no partition field",)),
    (
        {"keygenerator": "ComplexKeyGenerator", f"{W}keygenerator.type": "CUSTOM"},
        InvalidOptionError,
        ("keygenerator.class=ComplexKeyGenerator", "keygenerator.type=CUSTOM", "give one"),
    ),
    ({f"{W}payload.class": "OracleDebeziumAvroPayload"}, InvalidOptionError, ("OracleDebezium", "use Overwrite")),
    ({f"{W}payload.class": "PostgresDebeziumAvroPayload"}, InvalidOptionError, ("ts", "_event_lsn", "leave")),
    ({f"{W}payload.class": "MySqlDebeziumAvroPayload", "ordering": None},
     SchemaMismatchError, ("ordering column '_event_seq'", "add it")),
    ({f"{W}payload.class": "PartialUpdatePayload"}, InvalidOptionError, ("did you mean 'PartialUpdateAvroPayload'?",)),
    (
        {f"{W}payload.class": "DefaultHoodieRecordPayload", "merge_mode": "COMMIT_TIME_ORDERING"},
        InvalidOptionError,
        ("DefaultHoodieRecordPayload", "COMMIT_TIME_ORDERING", "give one"),
    ),
    ({"merge_mode": "EVENT_TIME_ORDERING", "ordering": None}, InvalidOptionError, ("ordering column", "set")),
    ({"partition_by": "ts", **TIMEBASED, "hoodie.keygen.timebased.timestamp.type": "WEEKS"},
     InvalidOptionError, ("'WEEKS'", "EPOCHMILLISECONDS")),
    ({"partition_by": "ts", "keygenerator": "TimestampBasedKeyGenerator"},
     InvalidOptionError, ("hoodie.keygen.timebased.timestamp.type", "set it")),
    ({"record_key": ["id", "n"], "partition_by": "p", "keygenerator": "SimpleKeyGenerator"},
     InvalidOptionError, ("SimpleKeyGenerator takes one record key field, not id, n", "name ComplexKeyGenerator")),
    ({"record_key": ["id", "n"], "partition_by": "ts", **TIMEBASED},
     InvalidOptionError, ("not id, n", "CustomKeyGenerator and", "=ts:TIMESTAMP")),
    ({"partition_by": "", "keygenerator": "SIMPLE"},
     InvalidOptionError, ("SimpleKeyGenerator takes one partition field, not none", "leave the generator out")),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CREATIONS)))
def test_create_with_bad_settings_is_refused(case: int, tmp_path: Path) -> None:
    options, error, parts = CREATIONS[case]
    settings = {"record_key": "id", "partition_by": ["p", "n"], "ordering": "ts", **options}
    with pytest.raises(LakeformatError) as caught:
        lakeformat.create(tmp_path / "t", SCHEMA, **settings)
    check_message(caught, error, *parts)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("role", ["record_key", "partition_by", "ordering"])
@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.binary()])
def test_column_of_a_type_unfit_for_its_role_is_refused(role: str, kind: pa.DataType, tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("c", kind))
    settings = {"record_key": "id", role: "c"}
    if role == "ordering" and kind == pa.binary():
        assert lakeformat.create(tmp_path / "t", schema, **settings).config.ordering_field == "c"
        return
    with pytest.raises(LakeformatError) as caught:
        lakeformat.create(tmp_path / "t", schema, **settings)
    check_message(caught, SchemaMismatchError, role.split("_", maxsplit=1)[0], "column 'c'")
    assert not (tmp_path / "t").exists()


CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"recordkey": "n"}, "'n'", "'id'"),
    ({"recordkey": "id,n"}, "'id,n'", "'id'"),
    ({"partitionpath": "n"}, "'n'", "'p'"),
    ({"partitionpath": ""}, "''", "'p'"),
    ({"partitionpath": "p,n"}, "'p,n'", "'p'"),
    ({"ordering": "n"}, "'n'", "'ts'"),
    ({"name": "other"}, "'other'", "'table'"),
    ({"hoodie.database.name": "db"}, "'db'", "''"),
    ({"hive_style": True}, "'true'", "'false'"),
    ({"url_encode": True}, "'true'", "'false'"),
    ({"keygenerator": "ComplexKeyGenerator"}, "ComplexKeyGenerator", "SimpleKeyGenerator"),
    ({f"{W}keygenerator.type": "CUSTOM"}, "CustomKeyGenerator", "SimpleKeyGenerator"),
    ({"merge_mode": "COMMIT_TIME_ORDERING"}, "COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
    (
        {f"{W}payload.class": "OverwriteWithLatestAvroPayload"},
        "COMMIT_TIME_ORDERING",
        "EVENT_TIME_ORDERING",
    ),
    ({f"{W}payload.class": "PartialUpdateAvroPayload"}, "PartialUpdateAvroPayload", "EVENT_TIME_ORDERING"),
]


@pytest.mark.parametrize("case", range(len(CONTRADICTIONS)))
def test_option_that_contradicts_the_table_is_refused(case: int, tmp_path: Path) -> None:
    options, given, stored = CONTRADICTIONS[case]
    table = new_table(tmp_path)
    parts = (given, stored, ".hoodie/hoodie.properties", "leave the option out")
    with check_refused(table, InvalidOptionError, *parts):
        lakeformat.open(tmp_path / "table", **options)
    if "recordkey" not in options:
        settings = {"record_key": "id", **options}
        with check_refused(table, InvalidOptionError, *parts):
            lakeformat.create(tmp_path / "table", SCHEMA, **settings)


def _remove_properties(table: Path, *keys: str) -> None:
    values = properties.decode((table / PROPERTIES_PATH).read_bytes(), name=PROPERTIES_PATH)
    kept = {key: text for key, text in values.items() if key not in keys}
    (table / PROPERTIES_PATH).write_bytes(properties.encode(kept, comments=[]))


def test_types_that_contradict_those_of_the_table_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path, partition_by=["p:SIMPLE", "n:SIMPLE"])
    with check_refused(table, InvalidOptionError, "'n:TIMESTAMP'", "'n:SIMPLE'", "leave the option out"):
        lakeformat.open(tmp_path / "table", partition_by=["p:SIMPLE", "n:TIMESTAMP"])


@pytest.mark.parametrize("prefix", ["hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased."])
def test_date_format_that_contradicts_the_table_is_refused(prefix: str, tmp_path: Path) -> None:
    new_table(tmp_path, partition_by="ts", **TIMEBASED)
    given = {f"{prefix}timestamp.type": "EPOCHMILLISECONDS"}
    again = lakeformat.open(tmp_path / "table", **given, **{f"{prefix}output.dateformat": "yyyy/MM"})
    with check_refused(again, InvalidOptionError, "'yyyy'", "'yyyy/MM'", "hoodie.properties"):
        lakeformat.open(tmp_path / "table", **given, **{f"{prefix}output.dateformat": "yyyy"})


def test_settings_of_time_that_a_table_lacks_are_asked_for(tmp_path: Path) -> None:
    new_table(tmp_path, partition_by="ts", **TIMEBASED)
    _remove_properties(tmp_path / "table", "hoodie.keygen.timebased.timestamp.type")
    with pytest.raises(LakeformatError) as caught:
        lakeformat.open(tmp_path / "table").upsert(ROWS)
    check_message(caught, InvalidOptionError, "hoodie.keygen.timebased.timestamp.type", "set it")


def test_types_of_a_custom_key_generator_that_a_table_lacks_are_asked_for(tmp_path: Path) -> None:
    table = new_table(tmp_path, partition_by=["p:SIMPLE", "n:SIMPLE"])
    _remove_properties(tmp_path / "table", TYPED_FIELDS)
    untold = lakeformat.open(tmp_path / "table")
    with check_refused(table, InvalidOptionError, "not stored with the table", "p:SIMPLE or :TIMESTAMP"):
        untold.upsert(ROWS)


def test_complex_key_encoding_other_than_the_tables_is_refused(tmp_path: Path) -> None:
    option = "hoodie.write.complex.keygen.new.encoding"
    table = new_table(tmp_path, keygenerator="ComplexKeyGenerator")
    with check_refused(table, InvalidOptionError, f"{option}='false' contradicts 'true'", "leave the option out"):
        lakeformat.open(tmp_path / "table", **{option: "false"})
    _remove_properties(tmp_path / "table", option)
    other = lakeformat.open(tmp_path / "table", **{option: "false"})
    with check_refused(table, InvalidOptionError, f"{option}=false", "'id:a'", "'a'", "leave the option out"):
        other.upsert(ROWS)


@pytest.mark.parametrize("option", ["hoodie.combine.before.upsert", "hoodie.combine.before.delete"])
def test_upsert_without_deduplication_is_refused(option: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    other = lakeformat.open(tmp_path / "table", **{option: False})
    with check_refused(table, InvalidOptionError, f"{option}=false", "leave it out"):
        other.upsert(ROWS)


@pytest.mark.parametrize("given", ["", False, True, 20240101, 1.5, b"20240101000000", dt.time(10), [], ("2024-01-01",)])
def test_as_of_value_of_a_wrong_type_is_refused(given: Any, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with check_refused(table, InvalidOptionError, repr(given), "give a datetime", "yyyyMMddHHmmss[SSS]"):
        table.to_arrow(as_of=given)
    with check_refused(table, InvalidOptionError, repr(given)):
        table.explain(as_of=given)
    if not isinstance(given, tuple):
        with check_refused(table, InvalidOptionError, "is not an instant"):
            lakeformat.open(tmp_path / "table", **{"as.of.instant": given}).to_arrow()


@pytest.mark.parametrize("text", ["yesterday", "2024-13-01", "20240101", "1700000000000.5", "2024-01-01T00:00:00"])
def test_as_of_text_that_is_not_an_instant_is_refused(text: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with check_refused(table, InvalidOptionError, repr(text), "yyyyMMddHHmmss[SSS]"):
        table.to_arrow(as_of=text)
    with check_refused(table, InvalidOptionError, repr(text)):
        lakeformat.open(tmp_path / "table", **{"as.of.instant": text}).to_arrow()
