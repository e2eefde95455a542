"""Write ``docs/reference/spark-settings.md``: what lakeformat does with the settings of Spark's session."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lakeformat.spark.settings import settings_page

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "spark-settings.md"

if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
