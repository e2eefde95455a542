"""Keys of a secondary index: the text of a value, ``$``, and the record key, both escaped. Pure.

Hudi: ``SecondaryIndexKeyUtils``.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of

__all__ = ["index_texts", "join_secondary_keys", "prefixes_of_values", "record_keys_of", "value_prefixes"]

#: Characters that an escape character precedes.
_SPECIAL: Final = r"([\\$\x00])"
_ESCAPED: Final = r"(?s)\\(.)"
#: A value and the first ``$`` that is not escaped.
_PREFIX: Final = r"(?s)^(?P<value>(?:[^\\$]|\\.)*\$)"
#: The text of a null value. In a value, this character is escaped.
_NULL: Final = "\x00"


def index_texts(values: pa.Array) -> pa.Array:
    """Return values as the index stores them: a timestamp is its number of microseconds."""
    is_instant = kind_of(values.type) is Kind.TIMESTAMP
    return (values.cast(pa.int64()) if is_instant else values).cast(pa.string())


def join_secondary_keys(values: pa.Array, record_keys: pa.Array) -> pa.Array:
    """Return the keys of the index for values, as text, and the record keys of their rows."""
    return pc.binary_join_element_wise(prefixes_of_values(values), _escape(record_keys), "")


def prefixes_of_values(values: pa.Array) -> pa.Array:
    """Return how the keys of all rows with a value begin."""
    return pc.binary_join_element_wise(_escape(values).fill_null(_NULL), "$", "")


def value_prefixes(keys: pa.Array) -> pa.Array:
    """Return the beginning of each key, up to the end of the value. A key without one stays whole."""
    parts = pc.extract_regex(keys, _PREFIX)
    return pc.coalesce(pc.struct_field(parts, "value"), keys)


def record_keys_of(keys: pa.Array) -> pa.Array:
    """Return the record key in each key."""
    return pc.replace_substring_regex(
        pc.replace_substring_regex(keys, _PREFIX, "", max_replacements=1), _ESCAPED, r"\1"
    )


def _escape(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, _SPECIAL, r"\\\1")
