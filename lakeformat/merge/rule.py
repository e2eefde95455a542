"""The merge rule of one write: which of two rows with one key stays, and which of its fields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.merge.fields import filled
from lakeformat.merge.merger import Merger

__all__ = ["MergeRule"]


@dataclass(frozen=True, slots=True)
class MergeRule:
    """The rule for a key that occurs again. A picklable value, the same on the driver and in every task.

    ============================================  ====================================================
    rule                                          result for two rows with one key
    ============================================  ====================================================
    ``MergeRule()``                               the incoming row replaces the stored one
    ``event_time=True``                           the greater ordering value wins; on a tie, the incoming
    ``fills_nulls=True``                          nulls of the newer row are filled from the other
    ``columns=(...)``                             only these columns of the incoming row are written
    ``merger=...``                                the user's function makes the row
    ============================================  ====================================================

    Attributes:
        ordering: the ordering column, or a struct's field (``a.b``). It decides between rows of one batch; on a tie the
            later row wins. If None, the later row wins.
        event_time: whether the ordering column also decides between a stored and an incoming row.
        fills_nulls: Hudi's partial payloads. With them an incoming delete always deletes, whatever its ordering value.
        folds: whether rows of one batch also fill each other's nulls (Hudi: ``PartialUpdateAvroPayload``).
        columns: columns that an incoming row writes into a stored one, nulls included; None for all.
        merger: decides instead of all of the above, except for duplicates within the batch and incoming deletes.
    """

    ordering: str | None = None
    event_time: bool = False
    fills_nulls: bool = False
    folds: bool = False
    columns: frozenset[str] | None = None
    merger: Merger | None = None

    @property
    def stored_may_win(self) -> bool:
        """Tell whether a stored row can be the newer one."""
        return self.event_time and self.ordering is not None and self.merger is None

    @property
    def keeps_whole_rows(self) -> bool:
        """Tell whether a stored row that wins stays unchanged."""
        return self.stored_may_win and not self.fills_nulls

    @property
    def makes_rows(self) -> bool:
        """Tell whether the written row is made of both rows, by `made`."""
        return self.fills_nulls or self.merger is not None

    def made(
        self, stored: pa.Table, incoming: pa.Table, stored_is_newer: npt.NDArray[np.bool_]
    ) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Merge pairs of rows. Return the rows in ``incoming``'s schema, and a flag for each row to delete.

        Raises:
            InvalidInputError: the merger failed.
        """
        if self.merger is not None:
            return self.merger.merged(stored, incoming)
        return filled(stored, incoming, stored_is_newer), np.zeros(incoming.num_rows, bool)

    @property
    def combines_parts(self) -> bool:
        """Tell whether parts of a batch may be combined before the whole: not if a row is made of several rows."""
        return not self.folds
