"""Conversion between bytes or texts on disk and model values, without access to storage."""
