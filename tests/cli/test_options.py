"""``lakeformat options`` says before a job runs what happens to each option, and the write then does the same."""

from __future__ import annotations

import io
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidOptionError
from lakeformat.cli.main import main
from lakeformat.config.registry import OPTIONS

#: Option -> value, verdict, whether a write fails, a part of the printed text.
JOB: dict[str, tuple[str, str, bool, str]] = {
    "hoodie.datasource.write.recordkey.field": ("id", "obeyed", False, "Columns that identify a row"),
    "hoodie.schema.on.read.enable": ("true", "ignored", False, "columns get ids when they are altered"),
    "hoodie.allow.operation.metadata.field": ("true", "obeyed", False, "Add the column _hoodie_operation"),
    "hoodie.avro.write.support.class": ("org.example.W", "refused", True, "a Java class cannot run here"),
    "hoodie.populate.meta.fields": ("true", "obeyed", False, "Store each row's record key"),
    "hoodie.write.lock.provider": ("org.example.Lock", "refused", True, "no such lock here"),
    "hoodie.datasource.hive_sync.sync_comment": ("true", "ignored", False, "column comments, bucketing"),
    "hoodie.upsert.shuffle.parallelism": ("200", "ignored", False, "cores"),
    "hoodie.parquet.max.file.sise": ("1", "misspelt", False, "did you mean hoodie.parquet.max.file.size?"),
    "hoodie.write.quorum": ("1", "ignored", False, "not known and has no effect"),
    "hoodie.index.type": ("HBASE", "refused", True, "that index is not built"),
    "timeTravel": ("2024-01-01", "misspelt", True, "did you mean as.of.instant?"),
    "uri": ("s3://b/t", "refused", True, "the path is given first"),
    "fs.s3a.endpoint": ("http://x", "obeyed", False, "file system"),
    "spark.sql.shuffle.partitions": ("7", "ignored", False, "for Spark itself"),
}
PROPERTIES = "# a job\n" + "".join(f"{name}={value}\n" for name, (value, *_) in JOB.items())


def lines(text: str) -> dict[str, str]:
    return {line.split()[0]: " ".join(line.split()) for line in text.splitlines() if line.strip()}


@pytest.mark.parametrize("given", ["file", "stdin", "arguments"])
def test_check_prints_a_line_for_each_option_of_a_job(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.properties").write_text(PROPERTIES)
    words = {"file": [str(tmp_path / "job.properties")], "stdin": ["-"]}.get(given)
    if words is None:
        words = [f"{name}={value}" for name, (value, *_) in JOB.items()]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROPERTIES.encode())))
    assert main(["options", "check", *words]) == 2
    answer = capsys.readouterr()
    output = lines(answer.out)
    for name, (value, fate, _, says) in JOB.items():
        assert output[name].startswith(f"{name} {value} {fate} ")
        assert says in output[name]
    assert answer.err.strip() == "5 of 15 options would make a read or write fail"
    fates = [
        output[line.split()[0]].split()[2]
        for line in answer.out.splitlines()
        if line.split()[:1] and line.split()[0] in JOB
    ]
    kinds = [fate for fate, _ in itertools.groupby(fates)]
    assert kinds == ["refused", "misspelt", "ignored", "obeyed"]


def test_check_prints_json_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "check", "--json", *(f"{name}={value}" for name, (value, *_) in JOB.items())]) == 2
    found = {each["option"]: each for each in json.loads(capsys.readouterr().out)}
    assert {name: (each["value"], each["fate"], each["fails"]) for name, each in found.items()} == {
        name: (value, fate, fails) for name, (value, fate, fails, _) in JOB.items()
    }
    assert found["timeTravel"]["meant"] == "as.of.instant"
    assert "leave it out" in found["hoodie.avro.write.support.class"]["cure"]


@pytest.mark.parametrize("name", JOB)
def test_write_treats_each_option_as_the_check_says(name: str, tmp_path: Path) -> None:
    value, _, fails, _ = JOB[name]

    def make() -> Any:
        settings = {"hoodie.datasource.write.recordkey.field": "id", name: value}
        return lakeformat.create(tmp_path / "t", pa.schema({"id": pa.int64()}), **settings)

    if fails:
        with pytest.raises(InvalidOptionError, match=name):
            make()
    else:
        make()


def test_check_without_refusals_succeeds_and_masks_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "check", "record_key=id", "fs.s3a.secret.key=hush"]) == 0
    answer = capsys.readouterr()
    assert "hush" not in answer.out
    assert answer.err == ""


def test_argument_that_is_neither_file_nor_option_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["options", "check", str(tmp_path / "job.properties")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_list_has_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options"]) == 0
    output = lines(capsys.readouterr().out)
    assert {option.key for option in OPTIONS} <= set(output)
    assert main(["options", "--json"]) == 0
    assert [each["option"] for each in json.loads(capsys.readouterr().out)] == [option.key for option in OPTIONS]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (
            "bad.csv",
            "id,n\n1,x\n",
            "row 1, column 'n': 'x' is not a value of type int64, or would lose something; correct",
        ),
        ("short.csv", "id,n\n1,2\n3\n", "correct that line, or name another format with --format"),
        ("bad.json", '{"id": 1, "n": 2, "day": "soon"}\n', "'soon'"),
        ("no.json", "id;n\n", "cannot be read as json"),
        ("no.parquet", "id,n\n1,2\n", "name another with --format"),
    ],
)
def test_bad_value_error_does_not_blame_the_file_format(
    name: str, data: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema({"id": pa.int64(), "n": pa.int64(), "day": pa.date32()})
    lakeformat.create(tmp_path / "t", schema, record_key="id")
    (tmp_path / name).write_text(data)
    assert main(["upsert", str(tmp_path / "t"), str(tmp_path / name)]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert ("--format" in message) == (name not in {"bad.csv", "bad.json"})
