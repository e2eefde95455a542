"""SQL that creates, describes and maintains tables, in plain Python."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError, SchemaMismatchError, TableNotFoundError
from tests.helpers import hudi_rs
from tests.helpers.sql_guides import DELTA, HUDI, Step, for_duckdb, play

_NUMBER = count()


class Shell:
    """A unique name for the table of each test."""

    def __init__(self, folder: Path) -> None:
        self.name, self.path = f"trips_{next(_NUMBER)}", str(folder / "t")

    def __call__(self, text: str, **more: Any) -> list[dict[str, Any]]:
        answer = lakeformat.sql(text.replace("{t}", self.name).replace("{path}", self.path), **more)
        return answer.to_pylist() if isinstance(answer, lakeformat.ResultTable) else [{"result": str(answer)}]

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the table. Fail if hudi-rs reads other rows."""
        table = lakeformat.open(self.path)
        return sorted(tuple(row[name] for name in table.schema.names) for row in hudi_rs.assert_same_rows(table))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made("drop table if exists {t}")


CREATE = (
    "create table if not exists {t} (id bigint, city string, fare double, ts bigint) using hudi "
    "partitioned by (city) tblproperties (type = 'cow', primaryKey = 'id', preCombineField = 'ts') location '{path}'"
)


@pytest.fixture
def trips(shell: Shell) -> Shell:
    """Make three commits: insert two rows, insert a third, update one."""
    shell(CREATE)
    shell("insert into {t} values (1, 'sf', 10.5, 1), (2, 'rio', 20.5, 1)")
    shell("insert into {t} values (3, 'sf', 30.5, 1)")
    shell("update {t} set fare = 0.5 where id = 1")
    return shell


NOW = [(1, "sf", 0.5, 1), (2, "rio", 20.5, 1), (3, "sf", 30.5, 1)]


def test_create_table_makes_the_table_of_hudis_sql(shell: Shell) -> None:
    assert shell(CREATE)[0]["result"] == "created"
    config = lakeformat.open(shell.path).config
    assert (config.name, config.record_fields, config.partition_fields) == (shell.name, ("id",), ("city",))
    assert (config.ordering_field, config.hive_style, config.takes_logs) == ("ts", True, False)
    assert shell(CREATE)[0]["result"] == "is there already"
    with pytest.raises(InvalidInputError, match="if not exists"):
        shell(CREATE.replace("if not exists ", ""))
    assert shell.name in [row["tableName"] for row in shell("show tables")]


def test_describe_returns_the_declared_types(shell: Shell) -> None:
    types = ["bigint", "int", "float", "double", "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"]
    nested = ["decimal(12,3)", "array<int>", "map<string,double>", "struct<a:int,b:array<string>>"]
    columns = ", ".join(f"c{at} {kind} comment 'a'" for at, kind in enumerate([*types, *nested]))
    shell(f"create table {{t}} ({columns}) using lakehouse location '{{path}}'")
    assert [row["data_type"] for row in shell("desc {t}")] == [*types, *nested]


def test_show_create_table_recreates_the_table(trips: Shell, tmp_path: Path) -> None:
    text = trips("show create table {t}")[0]["createtab_stmt"]
    other = text.replace(trips.path, str(tmp_path / "other")).replace(trips.name, f"{trips.name}_other")
    lakeformat.sql(other)
    ignored = {"hoodie.table.name", "hoodie.table.checksum", "hoodie.table.create.schema"}
    made, shown = (
        {key: value for key, value in lakeformat.open(path).config.values.items() if key not in ignored}
        for path in (tmp_path / "other", trips.path)
    )
    assert made == shown
    assert lakeformat.open(tmp_path / "other").schema == lakeformat.open(trips.path).schema
    lakeformat.sql(f"drop table {trips.name}_other")


def test_create_table_as_select_and_or_replace(shell: Shell) -> None:
    shell(
        "create table {t} using hudi tblproperties (primaryKey = 'id') partitioned by (dt) location '{path}' "
        "as select 1 as id, 'a1' as name, 1000 as dt union all select 2, 'a2', 1001"
    )
    assert shell.rows() == [(1, "a1", 1000), (2, "a2", 1001)]
    with pytest.raises(InvalidInputError, match="create or replace"):
        shell("create table {t} using hudi as select 3 as id, 'a3' as name, 1000 as dt")
    shell("create or replace table {t} using hudi as select id + 1 as id, name, dt from {t}")
    assert shell.rows() == [(2, "a1", 1000), (3, "a2", 1001)]
    assert shell("select count(*) as n from {t} version as of 0")[0]["n"] == 2
    shell("create or replace table {t} using hudi")
    assert shell.rows() == []


def test_drop_table_forgets_the_name_and_keeps_the_files(trips: Shell) -> None:
    (result,) = trips("drop table {t}")
    assert (result["result"], result["files"]) == ("forgotten", "kept")
    with pytest.raises(TableNotFoundError, match="no table is known"):
        trips("drop table {t}")
    assert trips.rows() == NOW
    with pytest.raises(SchemaMismatchError, match=r"other columns, e\.g\. 'id'"):
        trips("create table {t} (id string) using hudi location '{path}'")
    trips("create table {t} using hudi location '{path}'")
    assert trips("select sum(fare) as s from {t}") == [{"s": 51.5}]


def test_name_of_a_deleted_table_can_be_a_column(shell: Shell) -> None:
    shell(CREATE)
    shutil.rmtree(shell.path)
    assert shell("select {t} from (select 1 as {t})") == [{shell.name: 1}]
    with pytest.raises(TableNotFoundError, match="no table is known"):
        shell("select * from {t}")


def test_table_options_apply_to_later_writes(shell: Shell) -> None:
    shell(
        "create table {t} (id bigint, v string) using hudi tblproperties "
        "(primaryKey = 'id', 'hoodie.datasource.insert.dup.policy' = 'fail') location '{path}'"
    )
    shell("insert into {t} values (1, 'a')")
    with pytest.raises(lakeformat.DuplicateKeyError):
        shell("insert into {t} values (1, 'b')")


def test_time_travel_by_version_and_by_time(trips: Shell) -> None:
    history = trips("describe history {t}")
    assert [(row["version"], row["operation"].replace("merge", "update"), row["updated"]) for row in history] == [
        (2, "update", 1),
        (1, "insert", 0),
        (0, "insert", 0),
    ]
    assert trips("describe history {t} limit 1") == history[:1]
    for asked in ("version as of 1", f"timestamp as of '{history[1]['timestamp']}'", "for version as of '1'"):
        assert trips(f"select sum({{t}}.fare) as s from {{t}} {asked} where id < 4") == [{"s": 61.5}], asked
    joined = (
        "select n.fare - old.fare as less from {t} as n join {t} version as of 1 old on n.id = old.id "
        "where n.fare <> old.fare and '{t} version as of 0' <> ''"
    )
    assert trips(joined) == [{"less": -10.0}]
    assert trips("select count(*) as n from lakehouse.`{path}` version as of 0 as t where t.id > 1") == [{"n": 1}]
    trips("insert into {t} select id + 10, city, fare, ts from {t} version as of 0 where id = 1")
    assert trips.rows() == [*NOW, (11, "sf", 10.5, 1)]
    with pytest.raises(lakeformat.InstantNotAvailableError, match="no version 9; it has versions 0 to 3"):
        trips("select * from {t} version as of 9")


def test_hudi_table_changes_returns_changes_since_an_instant(trips: Shell) -> None:
    first, second, _ = (row["instant_time"] for row in reversed(trips("describe history {t}")))
    changed = f"select id, fare from hudi_table_changes('{{t}}', 'latest_state', '{first}') order by id"
    assert trips(changed) == [{"id": 1, "fare": 0.5}, {"id": 3, "fare": 30.5}]
    asked = f"hudi_table_changes('{{path}}', 'cdc', 'earliest', '{second}')"
    assert trips(f"select c.op, count(*) as n from {asked} as c group by op") == [{"op": "i", "n": 3}]
    with pytest.raises(InvalidInputError, match="'latest_state' or 'cdc'"):
        trips("select * from hudi_table_changes('{t}', 'newest')")


def test_restore_table_returns_to_a_version_or_time(trips: Shell) -> None:
    then = trips("describe history {t}")[-1]["timestamp"]
    trips("restore table {t} to version as of 1")
    assert trips.rows() == [(1, "sf", 10.5, 1), *NOW[1:]]
    trips(f"restore {{t}} to timestamp as of '{then}'")
    assert trips.rows() == [(1, "sf", 10.5, 1), NOW[1]]
    with pytest.raises(InvalidInputError, match="no commit is as old"):
        trips("restore table {t} to timestamp as of '2001-01-01'")


def test_alter_table_adds_columns(trips: Shell) -> None:
    trips("alter table {t} add columns (tip double comment 'extra', tags array<string>)")
    trips("alter table {t} add column if not exists tip double")
    assert trips.rows() == [(*row, None, None) for row in NOW]
    trips("update {t} set tip = fare / 2 where id = 2")
    assert trips("select tip from {t} where id = 2") == [{"tip": 10.25}]


def test_alter_table_renames_drops_moves_and_widens_columns(trips: Shell) -> None:
    trips("alter table {t} add columns (seats int after id, place struct<x: int, y: string>)")
    trips("insert into {t} select 9, 4, 'sf', 1.5, 9, struct_pack(x := 1, y := 'a')")
    trips("alter table {t} rename column fare to price")
    trips("alter table {t} rename column place.y to why")
    trips("alter table {t} alter column seats type bigint")
    trips("alter table {t} change column ts ts bigint first")
    trips("alter table {t} add columns (place.z string first, note string)")
    trips("alter table {t} drop columns (note)")
    trips("alter table {t} add column stars int default 5")
    assert {row["stars"] for row in trips("select stars from {t}")} == {5}
    trips("alter table {t} drop column stars")
    trips("alter table {t} drop column if exists nothing")
    table = lakeformat.open(trips.path)
    assert table.schema.names == ["ts", "id", "seats", "city", "price", "place"]
    assert [field.name for field in table.schema.field("place").type] == ["z", "x", "why"]
    trips("update {t} set price = price * 2, seats = 5000000000 where id = 9")
    found = trips("select ts, seats, price, place.why as why from {t} where id = 9")
    assert found == [{"ts": 9, "seats": 5_000_000_000, "price": 3.0, "why": "a"}]
    assert [row["price"] for row in trips("select price from {t} where id < 9 order by id")] == [row[2] for row in NOW]


def test_partitions_are_listed_and_dropped(trips: Shell) -> None:
    assert [row["partition"] for row in trips("show partitions {t}")] == ["city=rio", "city=sf"]
    trips("alter table {t} drop partition (city = 'rio')")
    assert trips.rows() == [NOW[0], NOW[2]]
    trips("insert into {t} values (4, 'rio', 1.0, 1)")
    trips("truncate table {t} partition (city = 'sf')")
    assert trips.rows() == [(4, "rio", 1.0, 1)]
    trips("truncate table {t}")
    assert trips.rows() == []
    assert trips("select count(*) as n from {t} version as of 2") == [{"n": 3}]


def test_optimize_lays_out_files_and_vacuum_removes_old_ones(trips: Shell) -> None:
    table = lakeformat.open(trips.path)
    before = set(table.files()["path"].to_pylist())
    trips("optimize {t} where city = 'sf' zorder by (id, fare)")
    after = set(table.files()["path"].to_pylist())
    assert len(before & after) == 1
    assert (before & after).pop().startswith("city=rio")
    assert trips("optimize {t} where city > 'z'")[0]["result"] == "no partition is meant"
    assert trips("vacuum {t} retain 168 hours dry run") == []
    assert "nothing to delete" in trips("vacuum lakehouse.`{path}` retain 168 hours")[0]["result"]
    assert trips.rows() == NOW


def test_describe_table_lists_columns_and_settings(trips: Shell) -> None:
    columns = [(row["col_name"], row["data_type"]) for row in trips("describe table {t}")]
    assert columns[:4] == [("id", "bigint"), ("city", "string"), ("fare", "double"), ("ts", "bigint")]
    assert columns[-1] == ("city", "string")
    extended = {row["col_name"]: row["data_type"] for row in trips("describe extended {t}")}
    assert (extended["keys"], extended["at"]) == ("id", trips.path)
    detail = trips("describe detail lakehouse.`{path}`")[0]
    assert (detail["location"], detail["partitionColumns"], detail["numFiles"]) == (trips.path, ["city"], 2)
    assert {row["key"]: row["value"] for row in trips("show tblproperties {t}")}["hoodie.table.name"] == trips.name


NEW = "create table {t}x (id int, dt string) using hudi "
REFUSED = {
    "drop table lakehouse.`{path}`": (InvalidInputError, "no file is deleted by SQL"),
    "drop table {t} purge": (InvalidInputError, "purge is not supported"),
    "create table {t}x (id int) using hudi": (InvalidInputError, "add location"),
    "create table db.x (id int) using hudi location '/x'": (InvalidInputError, "names have no database"),
    "create table {t}x using hudi location '{path}x'": (TableNotFoundError, "to take the columns from"),
    "create table {t}x using hudi location '{path}' as select 1 as id": (InvalidInputError, "rows are in"),
    "create table {t}x (id int default 3) using hudi location '/x'": (InvalidInputError, "DEFAULT 3' of column 'id'"),
    "create table {t}x (id int not null) using hudi location '/x'": (InvalidInputError, "not null of column 'id'"),
    "create table {t}x (id interval day) using hudi location '/x'": (InvalidInputError, "type '.*' is not supported"),
    "create table lakehouse.`{path}x` clone {t}": (InvalidInputError, "clone is not supported"),
    "create table {t}x (a int) using hudi as select 1": (InvalidInputError, "leave them out"),
    NEW + "partitioned by (bucket(3, id)) location '/x'": (InvalidInputError, "partitioned by"),
    NEW + "clustered by (id) into 3 buckets location '/x'": (InvalidInputError, "CLUSTERED BY"),
    NEW + "tblproperties (primaryKeys = 'id') location '/x'": (InvalidOptionError, "did you mean 'primaryKey'"),
    NEW + "tblproperties (delta.enableChangeDataFeed = true) location '/x'": (InvalidOptionError, "cdc.enabled"),
    NEW + "tblproperties (primaryKey = 'nix') location '{path}x'": (SchemaMismatchError, "'nix' is not among"),
    "alter table {t} rename to y": (InvalidInputError, "rename to is not supported"),
    "alter table {t} set tblproperties ('a' = 'b')": (InvalidInputError, "options are given with each write"),
    "alter table {t} set serdeproperties ('a' = 'b')": (InvalidInputError, "SET SERDEPROPERTIES"),
    "alter table {t} drop column id": (InvalidInputError, "'id' is part of the record key"),
    "alter table {t} rename column fares to f": (InvalidInputError, "did you mean 'fare'"),
    "alter table {t} alter column fare type boolean": (
        InvalidInputError,
        "'fare' is double, which cannot become boolean",
    ),
    "alter table {t} alter column fare drop not null": (InvalidInputError, "write type, first or after"),
    "alter table {t} add columns (x int after idd)": (InvalidInputError, "did you mean 'id'"),
    "alter table {t} replace columns (id int)": (InvalidInputError, "drop and add the columns"),
    "alter table {t} add columns (id int)": (SchemaMismatchError, "'id' is there already"),
    "alter table {t} drop partition (id = 1)": (InvalidInputError, "all partition columns: city"),
    "alter table {t} drop partition (city > 'a')": (InvalidInputError, "write column = value"),
    "optimize {t} zorder by (nix)": (InvalidInputError, "nix"),
    "optimize {t} where fare > 1": (InvalidInputError, "fare"),
    "optimize {t} full": (InvalidInputError, "full is not supported"),
    "vacuum {t} full": (InvalidInputError, "vacuum ... full is not supported"),
    "vacuum {t} retain 0 hours": (InvalidInputError, "at least 1"),
    "restore table {t}": (InvalidInputError, "to version as of n"),
    "describe detail {t} limit 3": (InvalidInputError, "limit is for describe history"),
    "show partitions {t} partition (city = 'sf')": (InvalidInputError, "is not supported"),
    "describe history nowhere": (TableNotFoundError, "nowhere"),
    "create table {t}x (id int comment 'using hudi') using parquet": (InvalidInputError, "using lakehouse"),
    "create table {t}x (id int)": (InvalidInputError, "write create table ... using lakehouse"),
    "create temporary view v as select 1": (InvalidInputError, "not supported without Spark"),
    "set hoodie.x = 1": (InvalidInputError, "not supported without Spark"),
    "vacuum nowhere": (TableNotFoundError, "nowhere"),
}


def test_unsupported_clause_is_refused_by_name(trips: Shell) -> None:
    for text, (error, said) in REFUSED.items():
        with pytest.raises(error, match=said) as caught:
            trips(text)
        assert "\n" not in str(caught.value), text
    assert trips.rows() == NOW
    assert len(lakeformat.open(trips.path).history()) == 3


@pytest.mark.parametrize("guide", [HUDI, DELTA], ids=["hudi", "delta"])
def test_quick_start_runs_in_duckdbs_dialect(guide: list[Step], tmp_path: Path) -> None:
    def run(text: str) -> list[tuple[Any, ...]]:
        answer = lakeformat.sql(text)
        return [tuple(row.values()) for row in answer.to_pylist()] if isinstance(answer, lakeformat.ResultTable) else []

    play(for_duckdb(guide), run, str(tmp_path), next(_NUMBER))
    for table in tmp_path.iterdir():
        hudi_rs.assert_same_rows(lakeformat.open(table))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_of_a_keyless_table_are_changed_one_by_one(kind: str, shell: Shell) -> None:
    shell(f"create table {{t}} (id int, v double) using hudi tblproperties (type = '{kind}') location '{{path}}'")
    shell("insert into {t} values (1, 1.0), (1, 1.0), (2, 2.0)")
    shell("update {t} set v = v + id, id = id + 10 where v < 2")
    assert shell.rows() == [(2, 2.0), (11, 2.0), (11, 2.0)]
    merge = "merge into {t} using (values (2, 5.0), (3, 6.0), (3, 6.0)) s(id, v) on {t}.id = s.id "
    shell(merge + "when matched then update set v = s.v when not matched then insert *")
    assert shell.rows() == [(2, 5.0), (3, 6.0), (3, 6.0), (11, 2.0), (11, 2.0)]
    shell("insert into {t} values (4, 0.0)")
    shell("delete from {t} where id % 2 = 0")
    assert shell.rows() == [(3, 6.0), (3, 6.0), (11, 2.0), (11, 2.0)]
    keys = lakeformat.open(shell.path).to_arrow(["_hoodie_record_key"])["_hoodie_record_key"]
    assert len(set(keys.to_pylist())) == 4
    shell("merge into {t} using (select 3 as id from range(2)) s on {t}.id = s.id when matched then delete")
    assert shell.rows() == [(11, 2.0), (11, 2.0)]


def test_table_of_debezium_is_made_and_written(shell: Shell) -> None:
    shell(
        "create table {t} (id bigint, _event_bin_file string, _event_pos bigint, _change_operation_type string) "
        "using hudi tblproperties (type = 'mor', primaryKey = 'id', payloadClass = 'MySqlDebeziumAvroPayload', "
        "'hoodie.write.table.version' = '9') location '{path}'"
    )
    assert lakeformat.open(shell.path).config.ordering_fields == ("_event_bin_file", "_event_pos")
    shell("insert into {t} values (1, 'b.1', 1, 'c'), (2, 'b.1', 9, 'c')")
    assert [row["id"] for row in shell("select id from {t} order by id")] == [1, 2]
    lakeformat.open(shell.path).upsert(
        pa.table({"id": [1], "_event_bin_file": ["b.2"], "_event_pos": [1], "_change_operation_type": ["d"]})
    )
    assert [row["id"] for row in shell("select id from {t}")] == [2]


def test_table_with_several_ordering_columns_is_made(shell: Shell) -> None:
    create = (
        "create table {t} (id bigint, a string, b bigint) using hudi tblproperties (primaryKey = 'id', "
        "orderingFields = 'a,b', 'hoodie.write.table.version' = '9') location '{path}'"
    )
    shell(create)
    assert lakeformat.open(shell.path).config.ordering_fields == ("a", "b")
