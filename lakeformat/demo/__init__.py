"""The demo, ``python -m lakeformat.demo``: a year of flights in, out by another engine."""
