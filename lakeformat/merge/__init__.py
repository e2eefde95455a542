"""The merge of rows with the same key into one row: the rules, and the functions on columns that apply them."""

from __future__ import annotations

from lakeformat.merge.fields import fill_unset, fold_rows, known_values
from lakeformat.merge.fold import fold_parts
from lakeformat.merge.order import flag_deleted_rows, latest_rows, ordering_columns, stored_wins, top_columns
from lakeformat.merge.rules import MergeFunction, Merger, MergeRule, ReadRule, make_read_rule
from lakeformat.merge.slice_merge import SliceMerge
from lakeformat.merge.versions import marked_rows

__all__ = [
    "MergeFunction",
    "MergeRule",
    "Merger",
    "ReadRule",
    "SliceMerge",
    "fill_unset",
    "flag_deleted_rows",
    "fold_parts",
    "fold_rows",
    "known_values",
    "latest_rows",
    "make_read_rule",
    "marked_rows",
    "ordering_columns",
    "stored_wins",
    "top_columns",
]
