"""Metadata of other table formats beside a table, so that their readers can read its base files."""
