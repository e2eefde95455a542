"""Immutable classes for the terms of the Hudi specification, such as instants and file slices. They read no files."""
