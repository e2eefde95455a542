"""Row filters with Spark SQL's meaning: parsing, binding to a schema, selecting rows, and skipping files.

::

    parse_where(text) ─┐
                       ├─> Predicate ── bind(schema) ─┬> mask(batch)        which rows
    pushed filters ────┘                              └> may_match(bounds)  which files and row groups
    pyarrow expression ───────── bind_expression ─────┘
"""

from __future__ import annotations

from lakeformat.predicate.bind import bind, bind_lenient, resolve_column
from lakeformat.predicate.bounds import ColumnBounds, may_match
from lakeformat.predicate.expression import Where, bind_expression, bind_where, where_type_error
from lakeformat.predicate.nodes import (
    MIRRORED,
    Always,
    And,
    Calculated,
    ColumnComparison,
    Comparison,
    Computed,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    column_path,
    columns_of,
    path_parts,
)
from lakeformat.predicate.rows import mask
from lakeformat.predicate.sql import parse_where
from lakeformat.predicate.zoned import ZonedCondition, zoned_condition

__all__ = [
    "MIRRORED",
    "Always",
    "And",
    "Calculated",
    "ColumnBounds",
    "ColumnComparison",
    "Comparison",
    "Computed",
    "Contains",
    "EndsWith",
    "In",
    "IsNull",
    "Like",
    "Not",
    "Operator",
    "Or",
    "Predicate",
    "StartsWith",
    "Where",
    "ZonedCondition",
    "bind",
    "bind_expression",
    "bind_lenient",
    "bind_where",
    "column_path",
    "columns_of",
    "mask",
    "may_match",
    "parse_where",
    "path_parts",
    "resolve_column",
    "where_type_error",
    "zoned_condition",
]
