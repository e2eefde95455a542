"""Bytes and texts on disk to model values and back, without touching storage."""
