"""The rule by which partitions have their own numbers of buckets (Hudi: ``PartitionBucketIndexCalculator``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakeformat.model.hashing_metadata import MOST_BUCKETS

__all__ = ["BucketRule"]


@dataclass(frozen=True, slots=True)
class BucketRule:
    """Numbers of buckets by patterns of partition paths. A picklable value.

    Attributes:
        expressions: Pairs of a regular expression and a number of buckets. The first that is found in a partition path
            decides.
        default: The number of buckets of all other partitions.
    """

    expressions: tuple[tuple[str, int], ...]
    default: int

    @classmethod
    def parse(cls, text: str, default: int) -> BucketRule:
        """Parse Hudi's form of a rule: ``<regular expression>,<buckets>``, several separated by semicolons.

        >>> BucketRule.parse("day=2024.*,8;b,1", 2).buckets_of("day=2024-05-06")
        8

        Raises:
            ValueError: The text has another form.
        """
        rules = []
        for part in filter(None, (part.strip() for part in text.split(";"))):
            pattern, comma, count = part.rpartition(",")
            if not comma or not count.strip().isdigit() or not 1 <= int(count) <= MOST_BUCKETS:
                raise ValueError("write <regular expression>,<number of buckets>, several separated by semicolons")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression ({error})") from None
            rules.append((pattern, int(count)))
        return cls(tuple(rules), default)

    @property
    def text(self) -> str:
        """Return the expressions in Hudi's form."""
        return ";".join(f"{pattern},{count}" for pattern, count in self.expressions)

    def buckets_of(self, partition_path: str) -> int:
        """Return the number of buckets of a partition."""
        counts = (count for pattern, count in self.expressions if re.search(pattern, partition_path))
        return next(counts, self.default)
