"""Record what Spark answers to the questions of the tests: ``python tools/record_spark.py [NAME ...]``.

Without names it asks all questions of ``tests/helpers/spark_questions.py``. The records are the files of
``tests/fixtures/spark``. Tests compare plain Python with them, and ``tests/spark/test_recorded_answers.py`` compares
them with every supported PySpark by night. A PySpark older than the one of a record writes only the answers that
differ, into ``older.json``: ``.venv-spark-4.0.5/bin/python tools/record_spark.py``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyspark.sql import SparkSession

from tests.helpers.spark_answers import write
from tests.helpers.spark_asked import ask
from tests.helpers.spark_questions import QUESTIONS


def main() -> None:
    """Ask the named questions, and write a record for each."""
    parser = argparse.ArgumentParser(description="Record what Spark answers to the questions of the tests.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="default: all")
    names: list[str] = parser.parse_args().names or list(QUESTIONS)
    logging.disable()  # Conditions without a result are answers, too.
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            write(name, spark.version, ask(spark, QUESTIONS[name](), Path(folder)))
        print(name, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
