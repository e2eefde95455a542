"""Run the notebooks and store their outputs: ``python tools/notebooks.py [NAME ...]``.

Run this after each change of a notebook's code. The notebook's metadata has a digest of the code that computed the
outputs, and a test fails if the code has changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

__all__ = ["DIGEST", "NOTEBOOKS", "code_digest", "main", "tidy"]

NOTEBOOKS: Final = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
#: Key of the digest in a notebook's metadata.
DIGEST: Final = "shown_by_code"


def code_digest(document: dict[str, Any]) -> str:
    """Return a digest of the code of all code cells of a notebook."""
    code = ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def tidy(document: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return the notebook as it is stored: with the digest of its code, without output that differs between runs.

    Standard error, the metadata of cells and the path of the temporary folder are removed.

    Args:
        document: the parsed notebook after its run.
        folder: the temporary folder of the run; its path is replaced by ``/tmp``.
    """
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [output for output in cell["outputs"] if output.get("name") != "stderr"]
            cell["metadata"] = {}
    cleaned = json.loads(json.dumps(document).replace(folder, "/tmp"))  # noqa: S108  Only a text in the output.
    kept = {name: cleaned["metadata"][name] for name in ("kernelspec",)}
    cleaned["metadata"] = {**kept, "language_info": {"name": "python"}, DIGEST: code_digest(document)}
    return dict(cleaned)


def _run(notebook: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    document = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        client = NotebookClient(document, timeout=600, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute()
        stored = tidy(json.loads(nbformat.writes(document)), folder)
    notebook.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(names: list[str]) -> None:
    """Run the notebooks with these names, without suffix; all notebooks if no name is given."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or notebook.stem in names:
            _run(notebook)


if __name__ == "__main__":
    main(sys.argv[1:])
