"""The steps that the engines on Spark have in common: SQL on a table with a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.lineitem.steps import KEY_COLUMNS, Step

__all__ = ["OnSpark"]

_SAME_ROW: Final = " and ".join(f"t.{name} = s.{name}" for name in KEY_COLUMNS)


class OnSpark:
    """An engine on Spark; ``name`` is the table's name in SQL."""

    spark: Any
    name: str

    def delete(self, step: Step) -> None:
        self.spark.sql(f"delete from {self.name} where {step.condition()}")

    def merge(self, rows: Path) -> None:
        self._merge(rows, "when matched then update set * when not matched then insert *")

    def cdc(self, rows: Path) -> None:
        """Merge with disjoint conditions: Hudi 1.2.0 deletes no row if a later clause for matches has no condition."""
        columns = [name for name in self.rows(rows).columns if name != "op"]
        sets = ", ".join(f"{name} = s.{name}" for name in columns)
        values = ", ".join(f"s.{name}" for name in columns)
        self._merge(
            rows,
            f"when matched and s.op = 'D' then delete when matched and s.op <> 'D' then update "
            f"set {sets} when not matched and s.op <> 'D' then insert ({', '.join(columns)}) values ({values})",
        )

    def content(self) -> list[int]:
        """Return what `LineitemEngine.content` promises."""
        query = f"select count(*), sum(l_extendedprice), sum(l_orderkey) from {self.name}"
        count, price, orders = self.spark.sql(query).first()
        return [int(count), int(price * 100), int(orders)]

    def versions(self) -> dict[str, str]:
        return {"spark": str(self.spark.version)}

    def close(self) -> None:
        self.spark.stop()

    def rows(self, file: Path) -> Any:
        """Return the rows of a file."""
        return self.spark.read.parquet(str(file))

    def _merge(self, rows: Path, clauses: str) -> None:
        self.rows(rows).createOrReplaceTempView("s")
        self.spark.sql(f"merge into {self.name} t using s on {_SAME_ROW} {clauses}")
