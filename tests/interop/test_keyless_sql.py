"""Tables without a record key that SQL has changed: Hudi reads the rows of a dictionary, and adds its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = [pytest.mark.interop, pytest.mark.nightly]

SCHEMA = a_schema(id="int64", name="string", x="float64", p="string")
KINDS = [(version, kind) for version in (6, 9) for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")]
Row = tuple[int, str, float | None, str]


def rows_of(table: pa.Table) -> list[Row]:
    return sorted(zip(*(table[name].to_pylist() for name in SCHEMA.names), strict=True), key=lambda row: row[0])


def check(hudi: Hudi, path: Path, model: dict[int, Row]) -> None:
    """Check that Hudi, hudi-rs and lakeformat read the model's rows, each under a unique stored key."""
    seen = hudi.read(path)
    assert rows_of(seen) == sorted(model.values())
    keys = seen["_hoodie_record_key"].to_pylist()
    assert len(set(keys)) == len(keys) == len(model)
    table = lakeformat.open(path)
    assert rows_of(table.to_arrow()) == sorted(model.values())
    hudi_rs.assert_same_rows(table)


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_sql_changes_rows_that_have_no_key(version: int, kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = {"hoodie.write.table.version": version, "table_type": kind}
    table = lakeformat.create(path, SCHEMA, partition_by="p", **made)
    model: dict[int, Row] = {at: (at, f"n{at}", at / 2, "ab"[at % 2]) for at in range(8)}
    columns = zip(*model.values(), strict=True)
    table.insert(pa.table([list(column) for column in columns], schema=SCHEMA))
    target = f"lakehouse.`{path}`"

    lakeformat.sql(f"update {target} set x = x * 10 + id, name = upper(name) where id % 3 = 0")
    model |= {at: (at, f"N{at}", at * 6.0, "ab"[at % 2]) for at in (0, 3, 6)}
    lakeformat.sql(f"delete from {target} where id in (1, 4)")
    del model[1], model[4]
    check(hudi, path, model)

    values = "(2, 'm', 20.0, 'a'), (3, 'm', 30.0, 'b'), (9, 'm', 90.0, 'b')"
    source = f"(select * from (values {values}) as v(id, name, x, p))"
    lakeformat.sql(
        f"merge into {target} t using {source} s on t.id = s.id when matched and t.p = 'b' then delete "
        "when matched then update set x = s.x when not matched then insert *"
    )
    del model[3]
    model |= {2: (2, "n2", 20.0, "a"), 9: (9, "m", 90.0, "b")}
    lakeformat.sql(f"insert into {target} values (10, 'i', 1.5, 'c')")
    model[10] = (10, "i", 1.5, "c")
    check(hudi, path, model)

    theirs = {"hoodie.write.table.version": str(version)}
    hudi.write(path, pa.table([[11], ["h"], [2.5], ["b"]], schema=SCHEMA), "insert", **theirs)
    model[11] = (11, "h", 2.5, "b")
    lakeformat.sql(f"update {target} set x = null where id >= 9")
    model |= {at: (at, model[at][1], None, model[at][3]) for at in (9, 10, 11)}
    check(hudi, path, model)
