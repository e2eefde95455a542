"""Answers of Spark to `spark_questions`, recorded in ``tests/fixtures/spark`` by ``python tools/record_spark.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.helpers.spark_questions import QUESTIONS, Question

__all__ = ["Answers", "answers", "selected", "write"]

FOLDER: Final = Path(__file__).resolve().parents[1] / "fixtures" / "spark"
#: Answers of older releases that differ from the records: version of Spark -> name of the record -> answers.
OLDER: Final = FOLDER / "older.json"
#: Condition -> a letter for each row, ``t`` (true), ``f`` (false) or ``n`` (null); ``error`` if one row has no result.
Answers = dict[str, str]


def selected(answer: str) -> list[int]:
    """Return the numbers of the rows for which a condition is true."""
    return [at for at, letter in enumerate(answer) if letter == "t"]


def answers(name: str, spark_version: str | None = None) -> Answers:
    """Return the recorded answers to a question, of this release of Spark or by default of the newest one.

    Fail if the record answers another question.
    """
    record, question = json.loads((FOLDER / f"{name}.json").read_text()), QUESTIONS[name]()
    again = f"the record '{name}' answers other {{}}; run python tools/record_spark.py {name}"
    for part, asked in _parts(question).items():
        assert json.dumps(record[part]) == json.dumps(asked), again.format(part)
    assert list(record["answers"]) == list(dict.fromkeys(question.conditions)), again.format("conditions")
    recorded: Answers = record["answers"]
    return recorded | _older().get(spark_version or "", {}).get(name, {})


def write(name: str, spark_version: str, found: Answers) -> None:
    """Write the record of a question. Write only what differs from the record if that is of a newer release."""
    path = FOLDER / f"{name}.json"
    newest: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"spark": spark_version}
    older = _older()
    if _numbers(spark_version) < _numbers(newest["spark"]):
        differing = {text: answer for text, answer in found.items() if answer != newest["answers"][text]}
        older[spark_version] = older.get(spark_version, {}) | {name: differing}
        older[spark_version] = {record: differs for record, differs in older[spark_version].items() if differs}
        OLDER.write_text(json.dumps(older, indent=1, sort_keys=True) + "\n")
    else:
        _write_record(name, spark_version, found)


def _older() -> dict[str, dict[str, Answers]]:
    older: dict[str, dict[str, Answers]] = json.loads(OLDER.read_text())
    return older


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _write_record(name: str, spark_version: str, found: Answers) -> None:
    """Write the record of a question, one line for each row and for each condition."""
    parts = {"spark": spark_version, **_parts(QUESTIONS[name]()), "answers": found}
    lines = ",\n".join(f" {json.dumps(part)}: {_lines(value)}" for part, value in parts.items())
    (FOLDER / f"{name}.json").write_text(f"{{\n{lines}\n}}\n")


def _parts(question: Question) -> dict[str, Any]:
    """Return what the answers depend on, besides the conditions, as JSON knows it."""
    return {
        "zone": question.zone,
        "settings": dict(question.settings),
        "columns": {field.name: str(field.type) for field in question.rows.schema},
        "rows": _rows(question.rows),
    }


def _rows(table: pa.Table) -> list[list[Any]]:
    """Return the rows as JSON knows them: decimals, times and bytes are texts."""
    rows: list[list[Any]] = json.loads(json.dumps([list(row.values()) for row in table.to_pylist()], default=str))
    return rows


def _lines(value: Any) -> str:
    if not value or isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(of)}" for key, of in value.items()) + "\n }"
