"""Conversion between the files of the timeline and model values."""
