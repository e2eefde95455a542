"""Tables of kinds that are not written to: refused by name, and left as they were."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fixture_tables import names, unpack
from refusal import named, tree

import lakeformat
from lakeformat import LakeformatError, UnsupportedTableError

