"""Bad rows are put aside: good rows are written as if the bad ones had not been there, and no row is lost."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError, SchemaMismatchError, StorageError, Table
from lakeformat.codec import properties
from lakeformat.codec.avro.schema import to_avro
from lakeformat.storage import LocalStorage, MemoryStorage
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.faulty import Fault, FaultyStorage, Mode, once
from tests.helpers.refusal import check_refused
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="string", p="string", n="int32", at=pa.timestamp("us"), d=pa.decimal128(6, 2))
ASIDE = {"bad_rows": "aside"}
FOLDER = Path(".hoodie/.lakeformat/bad_rows")


def open_aside(path: Path, **options: Any) -> Table:
    return lakeformat.open(path, **ASIDE, **options)


def reasons(table: Table) -> Counter[tuple[str, str]]:
    rows = table.bad_rows(["reason", "column_name"]).to_pylist()
    return Counter((row["reason"], row["column_name"]) for row in rows)


def rows_aside(table: Table) -> list[Any]:
    return [json.loads(text) for text in table.bad_rows(["row_json"])["row_json"].to_pylist()]


# --- the model: what is bad is known without the library ------------------------------------------------

KEYS = st.sampled_from([None, "", *"abcdef"])
PLACES = st.sampled_from(["x", "y", "y", "x", None, "../z", "a//b"])
NUMBERS = st.sampled_from([0, 1, -5, None, 2**31 - 1, 2**31, "text"])
#: Nanoseconds: those that are not whole microseconds cannot be stored.
TIMES = st.sampled_from([0, 1000, 5_000_000, None, 1, 1_000_001])


def is_bad(row: dict[str, Any]) -> bool:
    number = row.get("n")
    fits = number is None or (isinstance(number, int) and -(2**31) <= number < 2**31)
    return row["id"] in {None, ""} or row["p"] in {"../z", "a//b"} or not fits or bool((row.get("at") or 0) % 1000)


def written(table: Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: json.dumps(row, default=str, sort_keys=True))


def as_dicts(rows: list[dict[str, Any]]) -> Any:
    return [{**row, "at": None, "d": None} for row in rows]


def as_arrow(rows: list[dict[str, Any]]) -> Any:
    columns = {
        "id": pa.array([row["id"] for row in rows], pa.string()),
        "p": pa.array([row["p"] for row in rows], pa.string()),
        "n": pa.array([None] * len(rows), pa.int32()),
        "at": pa.array([row["at"] for row in rows], pa.int64()).cast(pa.timestamp("ns")),
        "d": pa.array([None] * len(rows), pa.decimal128(6, 2)),
    }
    return pa.table(columns)


def dict_rows() -> st.SearchStrategy[Any]:
    return st.lists(st.fixed_dictionaries({"id": KEYS, "p": PLACES, "n": NUMBERS}), max_size=12)


def arrow_rows() -> st.SearchStrategy[Any]:
    return st.lists(st.fixed_dictionaries({"id": KEYS, "p": PLACES, "at": TIMES}), max_size=12)


OPERATIONS = ["upsert", "insert", "bulk_insert", "insert_overwrite"]


@pytest.mark.parametrize(("drawn", "made"), [(dict_rows(), as_dicts), (arrow_rows(), as_arrow)], ids=["dicts", "arrow"])
def test_good_rows_are_written_as_if_alone_and_bad_rows_are_aside(
    drawn: st.SearchStrategy[Any], made: Callable[[Any], Any]
) -> None:
    @settings(max_examples=examples(30), deadline=None)
    @given(st.lists(drawn, min_size=1, max_size=3), st.sampled_from(OPERATIONS))
    def check(batches: list[list[dict[str, Any]]], operation: str) -> None:
        table = a_table(schema=SCHEMA, partition_by="p", **ASIDE)
        alone = a_table(schema=SCHEMA, partition_by="p")
        wanted: list[tuple[int, Any]] = []
        for batch in filter(None, batches):
            good = [row for row in batch if not is_bad(row)]
            wanted += [(at, row["id"]) for at, row in enumerate(batch) if is_bad(row)]
            result = getattr(table, operation)(made(batch))
            assert result.rows.incoming == len(batch)
            assert result.rows.set_aside == len(batch) - len(good)
            if good:
                getattr(alone, operation)(made(good))
        assert written(table) == written(alone)
        aside = table.bad_rows(["row_number", "row_json"]).to_pylist()
        found = [(row["row_number"], json.loads(row["row_json"])["id"]) for row in aside]
        assert sorted(found, key=str) == sorted(wanted, key=str)

    check()


@pytest.mark.parametrize("version", [6, 9])
def test_a_commit_counts_the_rows_that_are_put_aside(version: int, tmp_path: Path) -> None:
    schema = a_schema(id="string", p="string")
    options = {"hoodie.write.table.version": version, **ASIDE}
    table = a_table(tmp_path / "t", schema=schema, partition_by="p", **options)
    good = [{"id": "a", "p": "x"}, {"id": "b", "p": "y"}]
    for bad in (2, 0):
        result = table.upsert([*good, *[{"id": None, "p": "x"}] * bad])
        newest = table.context.store.load().commits[-1]
        stats = list(table.context.store.read_commit(newest).all_stats())
        assert (sum(stat.write_errors for stat in stats), result.rows.set_aside) == (bad, bad)
        if version == 6:
            document = json.loads((tmp_path / "t" / ".hoodie" / f"{newest.time}.commit").read_text())
            stored = [stat for part in document["partitionToWriteStats"].values() for stat in part]
            assert sum(stat["totalWriteErrors"] for stat in stored) == bad


def test_hudi_rs_reads_the_table_and_its_bad_rows(tmp_path: Path) -> None:
    schema = a_schema(id="string", p="string")
    table = a_table(tmp_path / "t", schema=schema, partition_by="p", **ASIDE)
    table.upsert([{"id": "a", "p": "x"}, {"id": None, "p": "x"}])
    hudi_rs.assert_same_rows(table)
    aside = lakeformat.open(tmp_path / "t" / FOLDER)
    assert hudi_rs.assert_same_rows(aside)[0]["reason"] == "no_key"
    assert str(table.check()) == str(aside.check()) == "nothing is wrong"


# --- each reason ---------------------------------------------------------------------------------------


def broken_text() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 2, 3], np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff\xfex")])


GOOD = a_batch(SCHEMA, id=["a", "b"], p="x", n=1, at=None, d=None)


def changed(name: str, values: pa.Array) -> pa.Table:
    return GOOD.set_column(GOOD.schema.get_field_index(name), name, values)


CASES: dict[str, tuple[pa.Table, dict[str, Any], str, str]] = {
    "null key": (changed("id", pa.array(["a", None])), {}, "no_key", "id"),
    "empty key": (changed("id", pa.array(["", "b"])), {}, "no_key", "id"),
    "keys of two columns": (
        changed("id", pa.array([None, "b"], pa.string())).set_column(1, "p", pa.array(["", "y"])),
        {"keys": ["id", "p"], "partition_by": ()},
        "no_key",
        "id,p",
    ),
    "date of a key": (
        changed("at", pa.array([0, 3_000_000], pa.int32()).cast(pa.date32())),
        {"keys": "at", "partition_by": ()},
        "unusable_key",
        "at",
    ),
    "control character": (changed("p", pa.array(["x", "\x01"])), {}, "unusable_partition", "p"),
    "text of a date partition": (
        changed("p", pa.array(["2024-01-31", "2024-02-30"])),
        {
            "keygenerator": "timestamp",
            "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
            "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
        },
        "unusable_partition",
        "p",
    ),
    "lost nanoseconds": (changed("at", pa.array([1000, 1001], pa.timestamp("ns"))), {}, "unfit_value", "at"),
    "year 300000": (changed("at", pa.array([0, 2**62], pa.timestamp("s"))), {}, "unfit_value", "at"),
    "text that is not UTF-8": (changed("id", broken_text()), {}, "damaged_text", "id"),
}


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
@pytest.mark.parametrize("case", CASES)
def test_one_of_two_rows_is_put_aside_with_its_reason(case: str, operation: str, tmp_path: Path) -> None:
    rows, made, reason, column = CASES[case]
    given = {"partition_by": "p", **made}
    if given.pop("keygenerator", None):
        given["hoodie.datasource.write.keygenerator.class"] = "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
    schema = pa.schema(
        [
            rows.schema.field(n) if n == "at" and reason == "unusable_key" else f
            for n, f in zip(SCHEMA.names, SCHEMA, strict=True)
        ]
    )
    table = a_table(tmp_path / "t", schema=schema, **given, **ASIDE)
    result = getattr(table, operation)(rows)
    assert (result.rows.incoming, result.rows.inserted, result.rows.set_aside) == (2, 1, 1)
    assert reasons(table) == {(reason, column): 1}
    assert table.count() == 1


def test_values_inside_nested_columns_are_found(tmp_path: Path) -> None:
    inner = pa.struct([("t", pa.timestamp("us")), ("l", pa.list_(pa.timestamp("us")))])
    schema = pa.schema([("id", pa.int64()), ("s", inner)])
    table = a_table(tmp_path / "t", schema=schema, **ASIDE)
    given = pa.struct([("t", pa.timestamp("ns")), ("l", pa.list_(pa.timestamp("ns")))])
    values = [{"t": 1000, "l": [2000]}, {"t": 1, "l": []}, {"t": None, "l": [3000, 3]}, None]
    table.upsert(pa.table({"id": range(4), "s": pa.array(values, given)}))
    assert table.to_arrow()["id"].to_pylist() == [0, 3]
    assert reasons(table) == {("unfit_value", "s"): 2}


def test_null_in_a_required_column_is_put_aside(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, **ASIDE)
    storage = table.context.storage
    data = properties.decode(storage.read(".hoodie/hoodie.properties"), name="hoodie.properties")
    fields = [field.with_nullable(field.name != "n") for field in SCHEMA]
    data["hoodie.table.create.schema"] = to_avro(pa.schema(fields), table_name="table")
    storage.replace(".hoodie/hoodie.properties", properties.encode(data, comments=[]))
    table.upsert(changed("n", pa.array([None, 3], pa.int32())))
    assert table.to_arrow(["id"]).to_pylist() == [{"id": "b"}]
    assert reasons(table) == {("null_value", "n"): 1}
    assert rows_aside(table)[0]["id"] == "a"


def test_narrower_values_of_a_merge_are_put_aside_with_repeated_keys(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=GOOD, partition_by="p", **ASIDE)
    source = pa.table(
        {
            "id": ["a", "b", "c", "c", None],
            "p": ["x"] * 5,
            "n": pa.array([7, 2**40, 1, 2, 3], pa.int64()),
            "at": pa.nulls(5, pa.timestamp("us")),
            "d": pa.nulls(5, pa.decimal128(6, 2)),
        }
    )
    result = table.merge(source).when_matched_update().when_not_matched_insert().execute()
    assert (result.rows.updated, result.rows.inserted, result.rows.set_aside) == (1, 0, 4)
    assert reasons(table) == {("unfit_value", "n"): 1, ("repeated_key", "id"): 2, ("no_key", "id"): 1}
    assert sorted(table.to_arrow(["id", "n"]).to_pylist(), key=str) == [{"id": "a", "n": 7}, {"id": "b", "n": 1}]
    assert set(table.bad_rows(["operation"])["operation"].to_pylist()) == {"merge"}


@pytest.mark.parametrize("index", [None, "GLOBAL_BLOOM"])
def test_duplicates_that_the_policy_refuses_are_put_aside(index: str | None, tmp_path: Path) -> None:
    a_table(tmp_path / "t", rows=GOOD, partition_by="p", index=index)
    table = open_aside(tmp_path / "t", dup_policy="fail", **({"hoodie.index.type": index} if index else {}))
    rows = a_batch(SCHEMA, id=["b", "c", "c", "d"], p="x", n=[1, 2, 3, 4], at=None, d=None)
    result = table.insert(rows)
    assert (result.rows.inserted, result.rows.set_aside) == (2, 2)
    assert reasons(table) == {("stored_key", "id"): 1, ("repeated_key", "id"): 1}
    assert sorted(table.to_arrow(["n"])["n"].to_pylist()) == [1, 1, 2, 4]


# --- the write as a whole ---------------------------------------------------------------------------------


def test_report_history_and_table_of_bad_rows_tell_the_same(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, partition_by="p", name="flights", **ASIDE)
    result = table.upsert(changed("id", pa.array([None, "b"], pa.string())))
    assert "1 set aside" in str(result)
    assert "set aside      0.000 s  no key 1" in result.describe()
    entry = table.history()[0]
    assert entry.report is not None
    assert entry.report["rows"]["set_aside"] == 1
    (row,) = table.bad_rows().to_pylist()
    assert {name: row[name] for name in ("instant_time", "table_name", "operation", "task", "row_number")} == {
        "instant_time": result.instant_time,
        "table_name": "flights",
        "operation": "upsert",
        "task": 0,
        "row_number": 0,
    }
    assert table.bad_rows(["reason"], where="reason = 'unfit_value'").num_rows == 0
    assert lakeformat.open(tmp_path / "t" / FOLDER).config.name == "flights_bad_rows"


def test_table_without_bad_rows_has_no_such_table_and_returns_none(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=GOOD, **ASIDE)
    assert table.bad_rows(["reason"]).to_pylist() == []
    assert not (tmp_path / "t" / FOLDER).exists()


def test_write_of_bad_rows_alone_makes_a_commit_without_files(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=GOOD, partition_by="p", **ASIDE)
    result = table.upsert(changed("id", pa.array(["", None])))
    assert not result.skipped
    assert (result.rows.set_aside, result.files.created, table.count()) == (2, 0, 2)


def test_overwrite_by_bad_rows_alone_is_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=GOOD, partition_by="p", **ASIDE)
    with check_refused(table, InvalidInputError, "every row is bad (no_key)", "would empty", "correct the rows"):
        table.overwrite(changed("id", pa.array(["", None])))
    assert table.bad_rows().num_rows == 0
    assert table.insert_overwrite(changed("id", pa.array(["", None]))).rows.set_aside == 2
    assert table.count() == 2


def test_unreadable_column_as_a_whole_is_refused(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=GOOD, partition_by="p", **ASIDE)
    for rows in (GOOD.drop_columns(["n"]), changed("n", pa.array([True, False]))):
        with check_refused(table, SchemaMismatchError, "'n'"):
            table.upsert(rows)
    assert table.bad_rows().num_rows == 0


def test_refusal_names_the_option_unless_it_was_given(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=GOOD, partition_by="p")
    bad = changed("id", pa.array(["a", None]))
    with check_refused(table, InvalidInputError, "'id' is null at row 1", "lakeformat.write.bad_rows=aside"):
        table.upsert(bad)
    with check_refused(table, SchemaMismatchError, "cannot be read as int32", "lakeformat.write.bad_rows=aside"):
        table.upsert([{"id": "c", "p": "x", "n": "text", "at": None, "d": None}])
    with pytest.raises(InvalidInputError, match=r"is null at row 1; give every row a key$"):
        lakeformat.open(tmp_path / "t", bad_rows="fail").upsert(bad)


def test_failed_validator_puts_nothing_aside(tmp_path: Path) -> None:
    def refuse(_: object) -> bool:
        return False

    table = a_table(tmp_path / "t", rows=GOOD, partition_by="p", **ASIDE)
    with pytest.raises(lakeformat.ValidationFailedError):
        table.upsert(changed("id", pa.array(["c", None])), validators=[refuse])
    assert table.bad_rows().num_rows == 0


# --- the place --------------------------------------------------------------------------------------------


def test_named_place_takes_bad_rows_of_several_tables(tmp_path: Path) -> None:
    place = {
        "hoodie.errortable.enable": "true",
        "hoodie.errortable.base.path": str(tmp_path / "bad"),
        "hoodie.errortable.target.table.name": "errors",
    }
    for name in ("one", "two"):
        table = a_table(tmp_path / name, schema=SCHEMA, name=name, **place)
        table.upsert(changed("id", pa.array(["a", None])))
    aside = lakeformat.open(tmp_path / "bad")
    assert aside.config.name == "errors"
    assert sorted(aside.to_arrow(["table_name"])["table_name"].to_pylist()) == ["one", "two"]
    assert table.bad_rows().num_rows == 2
    assert not (tmp_path / "two" / FOLDER).exists()


def test_place_that_is_no_table_of_bad_rows_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    a_table(tmp_path / "other", rows=a_batch(id=1))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "x.parquet").write_bytes(b"PAR1")
    bad = changed("id", pa.array(["c", None]))
    for name, words in (("other", "no column 'instant_time'"), ("plain", "plain Parquet"), ("t", "the table itself")):
        path = tmp_path / "t"
        if not path.exists():
            a_table(path, rows=GOOD)
        table = open_aside(path, bad_rows_path=str(tmp_path / name))
        with pytest.raises(InvalidOptionError, match=words):
            table.upsert(bad)
        assert table.count() == 2


def test_bad_rows_stay_through_clean_restore_repair_and_other_services(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, partition_by="p", **ASIDE)
    first = table.upsert(changed("id", pa.array(["a", None])))
    for at in range(3):
        table.upsert(changed("n", pa.array([at, at], pa.int32())))
    table.cluster()
    table.clean(commits=1)
    table.archive(min_commits=3, max_commits=4)
    table.restore(table.history()[1].instant_time)
    table.repair(keep=False)
    assert str(table.check()) == "nothing is wrong"
    assert table.bad_rows(["instant_time"])["instant_time"].to_pylist() == [first.instant_time]


def test_many_bad_rows_go_through_a_file_and_leave_none(tmp_path: Path) -> None:
    count = 120_000
    table = a_table(tmp_path / "t", schema=SCHEMA, partition_by="p", **ASIDE)
    ids = pa.array([None if at % 2 else f"k{at}" for at in range(count)])
    rows = pa.table({"id": ids, "p": ["x"] * count, "n": range(count), "at": [None] * count, "d": [None] * count})
    table.bulk_insert(rows.cast(SCHEMA).to_reader(10_000))
    numbers = table.bad_rows(["row_number"])["row_number"].to_pylist()
    assert sorted(numbers) == list(range(1, count, 2))
    assert table.count() == count // 2
    assert not list((tmp_path / "t/.hoodie/.lakeformat").glob("stage/*"))


def test_write_fails_if_its_bad_rows_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    a_table(path, rows=GOOD, partition_by="p")
    fault = Fault(lambda _, call: "bad_rows" in call.path and call.name == "open_output", Mode.BEFORE, kills=False)
    table = Table(FaultyStorage(LocalStorage(str(path)), fault), open_aside(path).options)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="injected"):
        table.upsert(changed("id", pa.array(["c", None])))
    left = open_aside(path)
    assert left.count() == 2
    assert left.bad_rows().num_rows == 0
    assert left.upsert(changed("id", pa.array(["c", None]))).rows.set_aside == 1


def test_plan_and_delete_leave_bad_rows_out(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=GOOD, partition_by="p", **ASIDE)
    bad = changed("id", pa.array(["a", None]))
    assert table.plan_upsert(bad).updates == 1
    assert table.delete(bad.select(["id", "p"])).rows.deleted == 1
    assert rows_aside(table) == [{"id": None, "p": "x"}]


# --- repeats and conflicts --------------------------------------------------------------------------------


def test_batch_that_is_sent_again_adds_its_bad_rows_once(tmp_path: Path) -> None:
    a_table(tmp_path / "t", rows=GOOD, partition_by="p")
    bad = changed("id", pa.array(["c", None]))
    for number in (1, 1, 2):
        table = open_aside(tmp_path / "t", **{"lakeformat.batch.app": "job", "lakeformat.batch.id": number})
        table.upsert(bad)
    assert table.bad_rows().num_rows == 2


def test_write_that_tries_again_after_a_conflict_adds_its_bad_rows_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    a_table(path, rows=GOOD, partition_by="p")

    interfered: list[bool] = []

    def interfere(_: object) -> None:
        interfered.append(True)
        lakeformat.open(path).upsert(changed("n", pa.array([8, 9], pa.int32())))

    storage = FaultyStorage(LocalStorage(str(path)))
    storage.meanwhile = once(lambda call: call.name == "create" and call.path.endswith(".inflight"), interfere)
    table = Table(storage, open_aside(path).options)  # type: ignore[arg-type]
    result = table.upsert(changed("id", pa.array(["a", None])))
    assert result.rows.updated == 1
    assert interfered
    aside = open_aside(path).bad_rows(["instant_time"])["instant_time"].to_pylist()
    assert aside == [result.instant_time]


def test_values_without_a_form_in_json_are_written_as_text() -> None:
    schema = a_schema(id="string", b="binary", f="float64", t=pa.timestamp("ns"), m=pa.map_(pa.string(), pa.float64()))
    stored = a_schema(id="string", b="binary", f="float64", t=pa.timestamp("us"), m=pa.map_(pa.string(), pa.float64()))
    table = a_table(MemoryStorage(), schema=stored, **ASIDE)
    values = [[None], [b"\xff\x00a"], [float("nan")], [1], [[("k", float("inf"))]]]
    table.upsert(pa.table(values, schema=schema))
    assert rows_aside(table) == [
        {"id": None, "b": "\\xff\x00a", "f": "nan", "t": "1970-01-01 00:00:00.000000001", "m": {"k": "inf"}}
    ]
    table.upsert([{"id": "", "b": b"x", "f": 1.0, "t": dt.datetime(2024, 1, 1), "m": {}, "e": Decimal("1.5")}])
    assert rows_aside(table)[1]["t"] == "2024-01-01 00:00:00.000000"
