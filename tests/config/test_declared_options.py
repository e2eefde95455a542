"""Options that are fields of dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from lakeformat.config.catalog_options import CatalogOptions, GlueOptions
from lakeformat.config.clustering_options import ClusteringOptions
from lakeformat.config.compaction_options import AutoCompaction
from lakeformat.config.metadata_options import MetadataOptions
from lakeformat.config.option import Effect, Option, declare, options_of, parse_count, values_of
from lakeformat.config.read_options import ReadOptions
from lakeformat.config.registry import OPTIONS
from lakeformat.config.resolve import resolve
from lakeformat.config.write_options import WriteOptions


@dataclass(frozen=True, slots=True)
class _Dummies:
    plain: int
    size: int = declare(Effect.READ, "dummy.size", "A size.", parse_count, 3)
    BESIDE: ClassVar = Option(Effect.READ, "dummy.beside", "Read by its key.")
    secret: str = declare(Effect.READ, "dummy.secret", "A secret.", convert=str.upper, is_secret=True)


def test_options_follow_from_the_class_in_the_order_of_its_members() -> None:
    assert [option.key for option in options_of(_Dummies)] == ["dummy.size", "dummy.beside", "dummy.secret"]
    assert options_of(_Dummies)[0] == Option(Effect.READ, "dummy.size", "A size.", parse_count, 3)


def test_values_are_those_of_the_options_as_the_fields_hold_them() -> None:
    given = {"dummy.size": 5, "dummy.secret": "word"}

    made = _Dummies(plain=1, **values_of(_Dummies, given.__getitem__))

    assert (made.plain, made.size, made.secret) == (1, 5, "WORD")
    assert repr(made) == "_Dummies(plain=1, size=5)"


@pytest.mark.parametrize(
    "declared",
    [ReadOptions, WriteOptions, ClusteringOptions, MetadataOptions, CatalogOptions, GlueOptions, AutoCompaction],
)
def test_each_class_of_options_is_registered(declared: Any) -> None:
    assert {*options_of(declared)} <= {*OPTIONS}


def test_queries_by_their_type() -> None:
    changes = resolve(
        {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc"}
    )
    optimized = resolve({"hoodie.datasource.query.type": "read_optimized"})

    assert (changes.read.incremental, changes.read.images, changes.read.optimized) == (True, True, False)
    assert (optimized.read.incremental, optimized.read.images, optimized.read.optimized) == (False, False, True)
