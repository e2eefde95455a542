"""The demo, ``python -m lakeformat.demo``: load a year of flights and read them with another engine."""
