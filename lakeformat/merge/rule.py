"""The rule of one write: which of two rows with a key stays, and which of its fields."""

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
    """What happens when a key comes again. A picklable value, the same on the driver and in every task.

    ============================================  ====================================================
    rule                                          of two rows with one key
    ============================================  ====================================================
    ``MergeRule()``                               the incoming row replaces the stored one
    ``event_time=True``                           the greater ordering value wins, the incoming on a tie
    ``fills_nulls=True``                          nulls of the newer row are filled from the other
    ``columns=(...)``                             only these columns of the incoming row are written
    ``merger=...``                                the user's function makes the row
    ============================================  ====================================================

    Attributes:
        ordering: the ordering column, or a struct's field (``a.b``); it decides between rows of one batch, the later
            one on a tie. None lets the later row win.
        event_time: the ordering column also decides between a stored and an incoming row.
        fills_nulls: Hudi's partial payloads. Under them an incoming delete deletes, whatever its ordering value.
        folds: rows of one batch fill each other's nulls, too (Hudi: ``PartialUpdateAvroPayload``).
        columns: columns that an incoming row writes into a stored one, nulls included; None for all.
        merger: decides instead of all of the above, but for duplicates within the batch and incoming deletes.
    """

    ordering: str | None = None
    event_time: bool = False
    fills_nulls: bool = False
    folds: bool = False
    columns: frozenset[str] | None = None
    merger: Merger | None = None

    @property
    def stored_may_win(self) -> bool:
        """Whether a stored row can be the newer one."""
        return self.event_time and self.ordering is not None and self.merger is None

    @property
    def keeps_whole_rows(self) -> bool:
        """Whether a stored row that wins stays just as it is."""
        return self.stored_may_win and not self.fills_nulls

    @property
    def makes_rows(self) -> bool:
        """Whether what is written is made of both rows, by `made`."""
        return self.fills_nulls or self.merger is not None

    def made(
        self, stored: pa.Table, incoming: pa.Table, stored_is_newer: npt.NDArray[np.bool_]
    ) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """The rows made of pairs of rows, in ``incoming``'s schema, and which of them are to be deleted.

        Raises:
            InvalidInputError: the merger failed.
        """
        if self.merger is not None:
            return self.merger.merged(stored, incoming)
        return filled(stored, incoming, stored_is_newer), np.zeros(incoming.num_rows, bool)

    @property
    def combines_parts(self) -> bool:
        """Whether parts of a batch may be combined before the whole: not where rows are made of several."""
        return not self.folds
