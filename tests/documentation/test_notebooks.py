"""The notebooks run in a fresh folder, and are stored with the output of their code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.pages import ROOT
from tools.notebooks import DIGEST, code_digest, tidy

NOTEBOOKS: Final = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_each_audience_has_a_notebook_on_the_site() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["operations", "plain-python", "pyspark"]
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert [notebook.name for notebook in NOTEBOOKS if f"(notebooks/{notebook.name})" not in page] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebook_stores_the_outputs_of_its_code(notebook: Path) -> None:
    text = notebook.read_text(encoding="utf-8")
    document = json.loads(text)
    assert document["metadata"][DIGEST] == code_digest(document), "run: python tools/notebooks.py"
    code = cells(notebook, "code")
    shown = [output for cell in code for output in cell["outputs"]]
    kinds = {kind for output in shown for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= kinds
    assert [cell["id"] for cell in code if cell["execution_count"] is None] == []
    assert [output["output_type"] for output in shown if output["output_type"] == "error"] == []
    assert not re.search(r"/(root|home|work)/|Traceback", text)
    assert len(cells(notebook, "markdown")) >= len(code) // 2


def test_the_digest_follows_the_code_and_outputs_are_tidied() -> None:
    cell = {"cell_type": "code", "source": "1", "metadata": {"x": 1}, "outputs": [{"name": "stderr"}, {"text": "/a/b"}]}
    document = {"cells": [cell], "metadata": {"kernelspec": {}, "widgets": {}}}
    tidied = tidy(document, "/a")
    assert tidied["cells"][0]["outputs"] == [{"text": "/tmp/b"}]  # noqa: S108  The path is printed, not opened.
    assert tidied["metadata"] == {"kernelspec": {}, "language_info": {"name": "python"}, DIGEST: code_digest(document)}
    cell["source"] = "2"
    assert code_digest(document) != tidied["metadata"][DIGEST]


def test_the_cells_of_plain_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (plain,) = (notebook for notebook in NOTEBOOKS if notebook.stem == "plain-python")
    names: dict[str, Any] = {}
    for cell in cells(plain, "code"):
        text = "".join(line for line in cell["source"] if not line.startswith("%"))
        exec(compile(text, cell["id"], "exec"), names)  # noqa: S102
    assert names["table"].exists() is False  # The last cell deletes the folder.
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_kernel_runs_it_and_shows_a_picture(notebook: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    document = nbformat.read(notebook, as_version=4)
    NotebookClient(document, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.get("data", {}) for cell in document.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in data for data in shown)
    assert any("text/html" in data for data in shown)
