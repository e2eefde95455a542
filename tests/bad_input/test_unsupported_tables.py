"""Tables of kinds that are not written to: refused by name, and left as they were."""

from __future__ import annotations
