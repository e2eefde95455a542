"""What is wrong with the options of a call beyond each alone: a part is missing, or two contradict each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Problem", "join_errors"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a call with these options fails.

    Attributes:
        option: key of the option that brings the problem.
        text: message of the error: what is wrong, and what to do.
    """

    option: str
    text: str


def join_errors(errors: Iterable[str]) -> str:
    """Return one message for all errors; each comes once.

    >>> join_errors(["option a is bad"])
    'option a is bad'
    """
    texts = list(dict.fromkeys(errors))
    if len(texts) == 1:
        return texts[0]
    numbered = "; ".join(f"({number}) {text}" for number, text in enumerate(texts, 1))
    return f"{len(texts)} options are refused: {numbered}; to check options before a job runs: lakeformat options check"
