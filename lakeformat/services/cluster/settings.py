"""How rows are put in order and in files: decided once for a plan, carried to whoever rewrites a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.config.clustering_options import (
    BUILD_METHOD,
    LAYOUT_STRATEGY,
    SAMPLE_SIZE,
    SORT_COLUMNS,
    TARGET_FILE_BYTES,
)
from lakeformat.config.clustering_settings import UNLIMITED_BYTES
from lakeformat.config.resolve import Options
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.files.base_file import FileSettings
from lakeformat.layout import Build, Curve, Positions, Strategy, fit
from lakeformat.model.clustering import ClusteringPlan
from lakeformat.write.rows.layout import sort_order

__all__ = [
    "Ordering",
    "RewriteSettings",
    "ordering_of_options",
    "ordering_of_plan",
    "plan_params",
    "sample_positions",
    "target_of_plan",
]

Ints = npt.NDArray[np.int64]

_ONE_FILE_EACH: Final = "SingleFileSortExecutionStrategy"
#: How the classes of Hudi end whose plans can be carried out here.
_EXECUTIONS: Final = ("SortAndSizeExecutionStrategy", _ONE_FILE_EACH)


@dataclass(frozen=True, slots=True)
class Ordering:
    """The order of rows. Picklable.

    Attributes:
        columns: by name, fields of structs by path; none leaves rows as they come.
        sample_rows: how many rows a curve is fitted to, at most.
    """

    columns: tuple[str, ...]
    strategy: Strategy = Strategy.LINEAR
    build: Build = Build.SAMPLE
    sample_rows: int = 200_000

    @property
    def curved(self) -> bool:
        """Whether rows go by their places on a curve, and not by the columns themselves."""
        return bool(self.columns) and self.strategy is not Strategy.LINEAR

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns that the table cannot be sorted by.

        Raises:
            InvalidInputError, SchemaMismatchError: a column is missing, has no order, or comes twice.
        """
        if self.columns:
            self.fitted(schema.empty_table())

    def fitted(self, sample: pa.Table) -> Curve:
        """The curve for rows like the sample's; of LINEAR one that only divides rows into ranges."""
        return fit(self.strategy, self.columns, sample, build=self.build)

    def order(self, rows: pa.Table) -> tuple[Ints, Positions | None] | None:
        """The rows' order, and their places in it where they go by a curve; None if they stay as they are.

        Ties stay in no particular order. Memory: some 32 bytes a row.
        """
        if not self.columns:
            return None
        keys = self.keys(rows)
        if not self.curved:
            return self.by_columns(keys), None
        chosen = sample_positions(rows.num_rows, self.sample_rows)
        curve = self.fitted(keys if chosen is None else keys.take(pa.array(chosen)))
        places = curve.positions(keys)
        order = np.argsort(places)
        return order, places[order]

    def by_columns(self, rows: pa.Table) -> Ints:
        """The rows' order by the columns themselves: nulls first and NaN last, as on a curve."""
        return sort_order(rows, self.columns, nulls_first=True)

    def top_columns(self, schema: pa.Schema) -> list[str]:
        """The columns that it looks into."""
        known = set(schema.names)
        return [*dict.fromkeys(n if n in known else n.partition(".")[0] for n in self.columns)]

    def keys(self, rows: pa.Table) -> pa.Table:
        """These columns, without dictionaries."""
        found = rows.select(self.top_columns(rows.schema))
        plain = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in found.schema]
        return found.cast(pa.schema(plain))


def sample_positions(rows: int, most: int) -> Ints | None:
    """Positions of a random sample, the same in every run; None if all rows are few enough."""
    if rows <= most:
        return None
    return np.sort(np.random.default_rng(rows).choice(rows, most, replace=False))


@dataclass(frozen=True)
class RewriteSettings:
    """Everything a task needs to rewrite groups. Picklable.

    Attributes:
        files: with the target as ``max_file_bytes``.
        folder: where files wait to be published.
        write_id: names the new file groups: a task that runs again names them as before.
        buffer_bytes: rows in memory, sorted and unsorted.
    """

    instant_time: str
    write_id: str
    folder: str
    files: FileSettings
    ordering: Ordering
    buffer_bytes: int
    write_token: str = "0-0-0"


def ordering_of_options(
    options: Options, by: Sequence[str] | None = None, curve: str | None = None, *, chosen: Strategy | None = None
) -> Ordering:
    """What options and arguments ask for.

    Args:
        chosen: the strategy if nobody names one, instead of the option's default.
    """
    columns = tuple(by) if by is not None else options[SORT_COLUMNS]
    strategy = Strategy.parse(curve if curve is not None else options[LAYOUT_STRATEGY])
    if curve is None and chosen is not None and not options.given(LAYOUT_STRATEGY):
        strategy = chosen
    return Ordering(columns, strategy, Build.parse(options[BUILD_METHOD]), options[SAMPLE_SIZE])


def plan_params(ordering: Ordering, target_file_bytes: int) -> Mapping[str, str]:
    """What a plan keeps of it: Hudi takes the columns from there, the rest from its writer's options."""
    params = {TARGET_FILE_BYTES: str(target_file_bytes)}
    if ordering.columns:
        params[SORT_COLUMNS] = ",".join(ordering.columns)
        params[LAYOUT_STRATEGY] = ordering.strategy.value
    return params


def ordering_of_plan(plan: ClusteringPlan, options: Options, name: str) -> Ordering:
    """How a plan, of anybody's, wants its rows; what it leaves open is as the options say.

    Raises:
        UnsupportedTableError: it wants another class to execute it, or rows with new meta columns.
        CorruptTableError: it names a file slice, and no file of it.
    """
    if plan.strategy_class and not plan.strategy_class.endswith(_EXECUTIONS):
        raise UnsupportedTableError(
            f"clustering {name} is planned for {plan.strategy_class}, which is not built; let Hudi run it, or cancel it"
        )
    if not plan.keeps_meta:
        raise UnsupportedTableError(
            f"clustering {name} wants rows with new commit times (preserveHoodieMetadata=false), which is not built; "
            "let Hudi run it, or cancel it"
        )
    if not all(one.path or one.delta_paths for group in plan.groups for one in group.slices):
        raise CorruptTableError(f"clustering {name} has file slices without files; cancel it")
    columns = tuple(part.strip() for part in plan.params.get(SORT_COLUMNS, "").split(",") if part.strip())
    curve = plan.params.get(LAYOUT_STRATEGY)
    return ordering_of_options(options, columns, curve)


def target_of_plan(plan: ClusteringPlan, options: Options) -> int:
    """Bytes of the files it wants."""
    if plan.strategy_class.endswith(_ONE_FILE_EACH):
        return UNLIMITED_BYTES
    said = plan.params.get(TARGET_FILE_BYTES, "")
    return max(1, int(said)) if said.isdecimal() else int(options[TARGET_FILE_BYTES])
