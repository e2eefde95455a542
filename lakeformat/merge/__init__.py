"""How rows with one key become one row: rules as values, their work as functions on columns."""

from __future__ import annotations

from lakeformat.merge.fields import filled, folded_rows
from lakeformat.merge.merger import MergeFunction, Merger
from lakeformat.merge.order import deleted_rows, latest_rows, stored_wins
from lakeformat.merge.rule import MergeRule

__all__ = [
    "MergeFunction",
    "MergeRule",
    "Merger",
    "deleted_rows",
    "filled",
    "folded_rows",
    "latest_rows",
    "stored_wins",
]
