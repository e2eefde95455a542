"""Questions put to a Spark that runs now."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.helpers.spark_answers import Answers
from tests.helpers.spark_questions import Question

__all__ = ["ask"]

_LETTERS: Final = {True: "t", False: "f", None: "n"}


def ask(spark: SparkSession, question: Question, folder: Path) -> Answers:
    """Return Spark's answers. Conditions are columns here, so Parquet's own filters are not used."""
    session = spark.newSession()
    for key, value in {"spark.sql.session.timeZone": question.zone, **question.settings}.items():
        session.conf.set(key, value)
    pq.write_table(question.rows, folder / "rows.parquet")
    return _ask(session.read.parquet(str(folder / "rows.parquet")), list(dict.fromkeys(question.conditions)))


def _ask(frame: DataFrame, texts: list[str]) -> Answers:
    """Return the answers. Ask by halves where a condition has no result, until it is alone."""
    try:
        found = frame.selectExpr(*(f"({text}) as _{at}" for at, text in enumerate(texts))).collect()
    except PySparkException:
        if len(texts) == 1:
            return {texts[0]: "error"}
        half = len(texts) // 2
        return _ask(frame, texts[:half]) | _ask(frame, texts[half:])
    return {text: "".join(_LETTERS[row[at]] for row in found) for at, text in enumerate(texts)}
