"""The SQL of the quick starts of Hudi and Delta, as their guides write it except for names, with the expected rows.

Any host can play a guide step by step: a statement, and the rows that the statement or a query after it must return. In
a statement, ``{folder}`` is the folder of the tables, ``{n}`` makes names unique to the test, and ``{then}`` is the
time of the commit that a step has marked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["DELTA", "HUDI", "Step", "for_duckdb", "play"]

Rows = list[tuple[Any, ...]]


class Step(NamedTuple):
    """A statement and the sorted rows to expect, of the query ``after`` or, without one, of the statement itself."""

    text: str
    rows: Rows | None = None
    after: str | None = None
    marks: bool = False


def play(steps: list[Step], run: Callable[[str], Rows], folder: str, number: int) -> None:
    """Run a guide. ``run`` returns the rows of a statement."""
    names = {"folder": folder, "n": str(number), "then": ""}
    for step in steps:
        answer = run(step.text.format(**names))
        if step.after is not None:
            answer = run(step.after.format(**names))
        if step.rows is not None:
            assert sorted(answer) == sorted(step.rows), step.text
        if step.marks:
            names["then"] = run("describe history hudi_table{n} limit 1".format(**names))[0][1]


def for_duckdb(steps: list[Step]) -> list[Step]:
    """Return the guide in DuckDB's dialect."""
    changed = []
    for step in steps:
        text = re.sub(
            r"SELECT col1 as id FROM VALUES ([\d,]+)", r"SELECT unnest([\1]) AS id", step.text, flags=re.IGNORECASE
        )
        text = text.replace("1.5D", "1.5").replace("UPDATE SET target.fare", "UPDATE SET fare")
        changed.append(step._replace(text=text))
    return changed


_COLUMNS = "ts BIGINT, uuid STRING, rider STRING, driver STRING, fare DOUBLE, city STRING"
_FARES = "select rider, fare from hudi_table{n}"
FARES = [
    ("rider-A", 19.10),
    ("rider-C", 27.70),
    ("rider-D", 33.90),
    ("rider-E", 93.50),
    ("rider-F", 34.15),
    ("rider-G", 43.40),
    ("rider-I", 41.06),
    ("rider-J", 17.85),
]
_UPDATED = [row for row in FARES if row[0] != "rider-D"] + [("rider-D", 25.0)]
_MERGED = [row for row in _UPDATED if row[0] not in {"rider-C", "rider-J"}] + [
    ("rider-C", 25.0),
    ("rider-J", 19.70),
    ("rider-K", 64.20),
    ("rider-H", 66.60),
]
_DELETED = [row for row in _MERGED if row[0] != "rider-K"]
HUDI = [
    Step(
        f"CREATE TABLE hudi_table{{n}} ({_COLUMNS}) USING HUDI PARTITIONED BY (city) LOCATION '{{folder}}/hudi_table'"
    ),
    Step(
        """INSERT INTO hudi_table{n}
VALUES
(1695159649087,'334e26e9-8355-45cc-97c6-c31daf0df330','rider-A','driver-K',19.10,'san_francisco'),
(1695091554788,'e96c4396-3fad-413a-a942-4cb36106d721','rider-C','driver-M',27.70 ,'san_francisco'),
(1695046462179,'9909a8b1-2d15-4d3d-8ec9-efc48c536a00','rider-D','driver-L',33.90 ,'san_francisco'),
(1695332066204,'1dced545-862b-4ceb-8b43-d2a568f6616b','rider-E','driver-O',93.50,'san_francisco'),
(1695516137016,'e3cf430c-889d-4015-bc98-59bdce1e530c','rider-F','driver-P',34.15,'sao_paulo'    ),
(1695376420876,'7a84095f-737f-40bc-b62f-6b69664712d2','rider-G','driver-Q',43.40 ,'sao_paulo'    ),
(1695173887231,'3eeb61f7-c2b0-4636-99bd-5d7a5a1d2c04','rider-I','driver-S',41.06 ,'chennai'      ),
(1695115999911,'c8abbe79-8d89-47ea-b4ce-4d224bae5bfa','rider-J','driver-T',17.85,'chennai');""",
        FARES,
        _FARES,
        marks=True,
    ),
    Step(
        "SELECT ts, fare, rider, driver, city FROM  hudi_table{n} WHERE fare > 50.0;",
        [(1695332066204, 93.5, "rider-E", "driver-O", "san_francisco")],
    ),
    Step("UPDATE hudi_table{n} SET fare = 25.0 WHERE rider = 'rider-D';", _UPDATED, _FARES),
    Step(
        f"-- source table\nCREATE TABLE fare_adjustment{{n}} ({_COLUMNS})\nUSING HUDI\n"
        "LOCATION '{folder}/fare_adjustment';"
    ),
    Step(
        """INSERT INTO fare_adjustment{n} VALUES
(1695091554788,'e96c4396-3fad-413a-a942-4cb36106d721','rider-C','driver-M',-2.70 ,'san_francisco'),
(1695530237068,'3f3d9565-7261-40e6-9b39-b8aa784f95e2','rider-K','driver-U',64.20 ,'san_francisco'),
(1695241330902,'ea4c36ff-2069-4148-9927-ef8c1a5abd24','rider-H','driver-R',66.60 ,'sao_paulo'    ),
(1695115999911,'c8abbe79-8d89-47ea-b4ce-4d224bae5bfa','rider-J','driver-T',1.85,'chennai'      );"""
    ),
    Step(
        """MERGE INTO hudi_table{n} AS target
USING fare_adjustment{n} AS source
ON target.uuid = source.uuid
WHEN MATCHED THEN UPDATE SET target.fare = target.fare + source.fare
WHEN NOT MATCHED THEN INSERT *
;""",
        _MERGED,
        "select rider, round(fare, 2) from hudi_table{n}",
    ),
    Step(
        "DELETE FROM hudi_table{n} WHERE uuid = '3f3d9565-7261-40e6-9b39-b8aa784f95e2';",
        _DELETED,
        "select rider, round(fare, 2) from hudi_table{n}",
    ),
    Step("SELECT rider, fare FROM hudi_table{n} TIMESTAMP AS OF '{then}' WHERE rider < 'rider-D';", FARES[:2]),
    Step(
        "SELECT rider FROM hudi_table_changes('{folder}/hudi_table', 'latest_state', '{then}') WHERE fare > 50;",
        [("rider-H",)],
    ),
    Step(
        "insert overwrite table hudi_table{n} partition(city = 'chennai') select 1, 'u', 'rider-Z', 'driver-Z', 1.5D;",
        [("rider-Z", 1.5)],
        "select rider, fare from hudi_table{n} where city = 'chennai'",
    ),
    Step("SHOW PARTITIONS hudi_table{n}", [("city=chennai",), ("city=san_francisco",), ("city=sao_paulo",)]),
    Step("CALL run_clustering(table => 'hudi_table{n}', order => 'ts')"),
    Step(
        "CALL show_commits(table => 'hudi_table{n}', limit => 3)",
        [(5,)],
        "select count(*) from hudi_table{n} where city <> 'chennai' and fare < 60",
    ),
    Step("DROP TABLE hudi_table{n}"),
    Step("DROP TABLE IF EXISTS fare_adjustment{n}"),
]

_AT = "delta.`{folder}/delta-table`"
_IDS = f"SELECT * FROM {_AT}"


def _ids(*ids: int) -> Rows:
    return [(each,) for each in ids]


DELTA = [
    Step(f"CREATE TABLE {_AT} USING DELTA AS SELECT col1 as id FROM VALUES 0,1,2,3,4;", _ids(0, 1, 2, 3, 4), _IDS),
    Step(f"INSERT OVERWRITE {_AT} SELECT col1 as id FROM VALUES 5,6,7,8,9;", _ids(5, 6, 7, 8, 9), _IDS),
    Step(f"UPDATE {_AT} SET id = id + 100 WHERE id % 2 == 0;", _ids(5, 7, 9, 106, 108), _IDS),
    Step(f"DELETE FROM {_AT} WHERE id % 2 == 0;", _ids(5, 7, 9), _IDS),
    Step(
        f"""MERGE INTO {_AT} AS oldData
  USING (SELECT col1 AS id FROM VALUES 1,3,5,7,9,11,13,15,17,19) AS newData
  ON oldData.id = newData.id
  WHEN MATCHED
    THEN UPDATE SET id = newData.id
  WHEN NOT MATCHED
    THEN INSERT (id) VALUES (newData.id);""",
        _ids(*range(1, 20, 2)),
        _IDS,
    ),
    Step(f"SELECT * FROM {_AT} VERSION AS OF 0;", _ids(0, 1, 2, 3, 4)),
    Step(f"DESCRIBE HISTORY {_AT} LIMIT 1"),
    Step(f"DESCRIBE DETAIL {_AT}"),
    Step(f"OPTIMIZE {_AT} ZORDER BY (id)", _ids(*range(1, 20, 2)), _IDS),
    Step(f"VACUUM {_AT} RETAIN 100 HOURS DRY RUN", []),
    Step(f"VACUUM {_AT} RETAIN 100 HOURS"),
    Step(f"RESTORE TABLE {_AT} TO VERSION AS OF 1", _ids(5, 6, 7, 8, 9), _IDS),
]
