"""Order of rows and settings of files: fixed once per plan and passed to every process that rewrites a group."""

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
    UNLIMITED_BYTES,
)
from lakeformat.config.resolve import Options
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.files.base_file import FileSettings
from lakeformat.layout import Curve, CurveBuild, CurveStrategy, Positions, fit_curve
from lakeformat.model.service_plans import ClusteringPlan
from lakeformat.write.rows.bulk_insert_order import sort_order

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
#: Name endings of Hudi's execution classes whose plans can be run.
_EXECUTIONS: Final = ("SortAndSizeExecutionStrategy", _ONE_FILE_EACH)


@dataclass(frozen=True, slots=True)
class Ordering:
    """Order of rows. Picklable.

    Attributes:
        columns: column names, fields of structs by path; if empty, rows keep their order.
        sample_rows: most rows that a curve is fitted to.
    """

    columns: tuple[str, ...]
    strategy: CurveStrategy = CurveStrategy.LINEAR
    build: CurveBuild = CurveBuild.SAMPLE
    sample_rows: int = 200_000

    @property
    def is_curved(self) -> bool:
        """Tell whether rows are ordered by places on a curve, not by the columns themselves."""
        return bool(self.columns) and self.strategy is not CurveStrategy.LINEAR

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns that the table cannot be sorted by.

        Raises:
            InvalidInputError, SchemaMismatchError: a column is missing, cannot be sorted, or is named twice.
        """
        if self.columns:
            self.fit_curve(schema.empty_table())

    def fit_curve(self, sample: pa.Table) -> Curve:
        """Fit the curve to a sample of rows. The curve of LINEAR only divides rows into ranges."""
        return fit_curve(self.strategy, self.columns, sample, build=self.build)

    def order(self, rows: pa.Table) -> tuple[Ints, Positions | None] | None:
        """Return the rows' order, and their places in that order if they are ordered by a curve.

        Return None if the rows keep their order. The order of ties is not defined. Memory: about 32 bytes per row.
        """
        if not self.columns:
            return None
        keys = self.keys(rows)
        if not self.is_curved:
            return self.by_columns(keys), None
        chosen = sample_positions(rows.num_rows, self.sample_rows)
        curve = self.fit_curve(keys if chosen is None else keys.take(pa.array(chosen)))
        places = curve.positions(keys)
        order = np.argsort(places)
        return order, places[order]

    def by_columns(self, rows: pa.Table) -> Ints:
        """Return the rows' order by the columns themselves: nulls first and NaN last, as on a curve."""
        return sort_order(rows, self.columns, nulls_first=True)

    def top_columns(self, schema: pa.Schema) -> list[str]:
        """Return the top-level columns that the order depends on."""
        known = set(schema.names)
        return [*dict.fromkeys(n if n in known else n.partition(".")[0] for n in self.columns)]

    def keys(self, rows: pa.Table) -> pa.Table:
        """Return the columns of the rows that `top_columns` names, with dictionaries decoded."""
        columns = rows.select(self.top_columns(rows.schema))
        plain = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in columns.schema]
        return columns.cast(pa.schema(plain))


def sample_positions(rows: int, most: int) -> Ints | None:
    """Return positions of a random sample, equal in every run; None if there are at most ``most`` rows."""
    if rows <= most:
        return None
    return np.sort(np.random.default_rng(rows).choice(rows, most, replace=False))


@dataclass(frozen=True)
class RewriteSettings:
    """Settings that a task needs to rewrite groups. Picklable.

    Attributes:
        files: file settings, with the target size as ``max_file_bytes``.
        folder: folder in which files wait to be published.
        write_id: basis of the new file ids, so that a task that is repeated produces the same ids.
        buffer_bytes: bytes in memory for rows, sorted and unsorted.
    """

    instant_time: str
    write_id: str
    folder: str
    files: FileSettings
    ordering: Ordering
    buffer_bytes: int
    write_token: str = "0-0-0"


def ordering_of_options(
    options: Options, by: Sequence[str] | None = None, curve: str | None = None, *, chosen: CurveStrategy | None = None
) -> Ordering:
    """Return the ordering that arguments and options set.

    Args:
        chosen: the strategy if neither the argument nor the option is given; None means the option's default.
    """
    columns = tuple(by) if by is not None else options[SORT_COLUMNS]
    strategy = CurveStrategy.parse(curve if curve is not None else options[LAYOUT_STRATEGY])
    if curve is None and chosen is not None and not options.is_set(LAYOUT_STRATEGY):
        strategy = chosen
    return Ordering(columns, strategy, CurveBuild.parse(options[BUILD_METHOD]), options[SAMPLE_SIZE])


def plan_params(ordering: Ordering, target_file_bytes: int) -> Mapping[str, str]:
    """Return the parameters stored in a plan.

    Hudi reads the columns from them, and the rest from its writer's options.
    """
    params = {TARGET_FILE_BYTES: str(target_file_bytes)}
    if ordering.columns:
        params[SORT_COLUMNS] = ",".join(ordering.columns)
        params[LAYOUT_STRATEGY] = ordering.strategy.value
    return params


def ordering_of_plan(plan: ClusteringPlan, options: Options, name: str) -> Ordering:
    """Return the ordering of a plan of any writer. The options set what the plan leaves open.

    Raises:
        UnsupportedTableError: the plan needs another execution class, or rows with new meta columns.
        CorruptTableError: the plan names a file slice without files.
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
    """Return the target size in bytes of the plan's files."""
    if plan.strategy_class.endswith(_ONE_FILE_EACH):
        return UNLIMITED_BYTES
    text = plan.params.get(TARGET_FILE_BYTES, "")
    return max(1, int(text)) if text.isdecimal() else int(options[TARGET_FILE_BYTES])
