"""Settings of a clustering run: the order of rows and the files. Every process that rewrites a group gets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.kinds import Kind, kind_of
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
from lakeformat.services.cluster.resize_plan import is_resizing
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
_EXECUTIONS: Final = (
    "SortAndSizeExecutionStrategy",
    _ONE_FILE_EACH,
    "ConsistentBucketClusteringExecutionStrategy",
    "ConsistentHashingExecutionStrategy",
)


@dataclass(frozen=True, slots=True)
class Ordering:
    """Order of rows. Picklable.

    Attributes:
        columns: column names, fields of structs by path; if empty, rows keep their order.
        strategy: by the columns themselves (LINEAR), or by a curve through their values.
        build: how column values become coordinates of the curve.
        sample_rows: maximum number of rows in the sample to which a curve is fitted.
    """

    columns: tuple[str, ...]
    strategy: CurveStrategy = CurveStrategy.LINEAR
    build: CurveBuild = CurveBuild.SAMPLE
    sample_rows: int = 200_000

    @property
    def is_curved(self) -> bool:
        """Tell whether rows are ordered by their positions on a Z-order or Hilbert curve, not by the columns."""
        return bool(self.columns) and self.strategy is not CurveStrategy.LINEAR

    def check(self, schema: pa.Schema) -> None:
        """Check that a table with this schema can be sorted by the columns.

        Raises:
            InvalidInputError, SchemaMismatchError: a column is missing, cannot be sorted, or is named twice.
        """
        if self.columns:
            self.fit_curve(schema.empty_table())

    def fit_curve(self, sample: pa.Table) -> Curve:
        """Return the curve, fitted to a sample of rows. LINEAR uses it only to divide rows into ranges, not to sort."""
        return fit_curve(self.strategy, self.columns, sample, build=self.build)

    def order(self, rows: pa.Table) -> tuple[Ints, Positions | None] | None:
        """Return the row numbers in sorted order, and the curve positions of the sorted rows (None for LINEAR).

        Return None if there are no sort columns: rows keep their order. The order of ties is not defined. Memory: about
        32 bytes per row.
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
        """Return the row numbers sorted by the columns themselves: nulls first and NaN last, as on a curve."""
        return sort_order(rows, self.columns, nulls_first=True)

    def top_columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the sort columns; for a field of a struct, the name of the top-level column."""
        names = set(schema.names)
        return [*dict.fromkeys(n if n in names else n.partition(".")[0] for n in self.columns)]

    def keys(self, rows: pa.Table) -> pa.Table:
        """Return the sort columns of ``rows`` (those of `top_columns`), with dictionaries decoded."""
        columns = rows.select(self.top_columns(rows.schema))
        plain = [f.with_type(f.type.value_type) if kind_of(f.type) is Kind.DICTIONARY else f for f in columns.schema]
        return columns.cast(pa.schema(plain))


def sample_positions(rows: int, most: int) -> Ints | None:
    """Return ``most`` random row numbers below ``rows``, the same in every run; None if there are at most ``most``."""
    if rows <= most:
        return None
    return np.sort(np.random.default_rng(rows).choice(rows, most, replace=False))


@dataclass(frozen=True)
class RewriteSettings:
    """Settings that a task needs to rewrite groups. Picklable.

    Attributes:
        files: file settings, with the target size as ``max_file_bytes``.
        folder: staging folder of the new files, until they are published.
        write_id: the new file ids are derived from it, so that a repeated task produces the same ids.
        buffer_bytes: memory for rows in bytes, sorted and unsorted copies together.
        copies_groups: whether row groups are copied byte for byte if rows keep their order.
        file_ids: maps the numbers of groups to the file ids of their new files; under consistent hashing only.
    """

    instant_time: str
    write_id: str
    folder: str
    files: FileSettings
    ordering: Ordering
    buffer_bytes: int
    write_token: str = "0-0-0"
    copies_groups: bool = False
    file_ids: Mapping[str, str] = field(default_factory=dict)


def ordering_of_options(
    options: Options, by: Sequence[str] | None = None, curve: str | None = None, *, chosen: CurveStrategy | None = None
) -> Ordering:
    """Return the ordering that arguments set; those that are None come from the options.

    Args:
        by: sort columns.
        curve: name of the strategy.
        chosen: the strategy if neither the argument nor the option is given; None means the option's default.
    """
    columns = tuple(by) if by is not None else options[SORT_COLUMNS]
    strategy = CurveStrategy.parse(curve if curve is not None else options[LAYOUT_STRATEGY])
    if curve is None and chosen is not None and not options.is_set(LAYOUT_STRATEGY):
        strategy = chosen
    return Ordering(columns, strategy, CurveBuild.parse(options[BUILD_METHOD]), options[SAMPLE_SIZE])


def plan_params(ordering: Ordering, target_file_bytes: int) -> Mapping[str, str]:
    """Return the parameters to store in a clustering plan, by Hudi's option names.

    If Hudi runs the plan, it reads the sort columns from these parameters and the rest from its own options.
    """
    params = {TARGET_FILE_BYTES: str(target_file_bytes)}
    if ordering.columns:
        params[SORT_COLUMNS] = ",".join(ordering.columns)
        params[LAYOUT_STRATEGY] = ordering.strategy.value
    return params


def ordering_of_plan(plan: ClusteringPlan, options: Options, name: str) -> Ordering:
    """Return the order of rows that a plan of any writer requests. If the plan names no curve, the options choose it.

    If the plan names no sort columns, rows keep their order.

    Raises:
        UnsupportedTableError: the plan needs another execution class, or new commit times for the rewritten rows.
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
    if not all(piece.path or piece.delta_paths for group in plan.groups for piece in group.slices):
        raise CorruptTableError(f"clustering {name} has file slices without files; cancel it")
    columns = tuple(part.strip() for part in plan.params.get(SORT_COLUMNS, "").split(",") if part.strip())
    curve = plan.params.get(LAYOUT_STRATEGY)
    return ordering_of_options(options, columns, curve)


def target_of_plan(plan: ClusteringPlan, options: Options) -> int:
    """Return the target size in bytes of the plan's files. A bucket is one file."""
    if plan.strategy_class.endswith(_ONE_FILE_EACH) or is_resizing(plan):
        return UNLIMITED_BYTES
    text = plan.params.get(TARGET_FILE_BYTES, "")
    return max(1, int(text)) if text.isdecimal() else int(options[TARGET_FILE_BYTES])
