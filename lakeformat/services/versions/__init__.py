"""Moves a table between table versions, on request."""
