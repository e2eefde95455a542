"""Savepoints: commits whose files no service may delete."""
