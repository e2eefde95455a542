"""Layouts: the order of rows in files, chosen so that a filter on any of some columns reads few files."""

from lakeformat.layout.curve import Build, Curve, Positions, Strategy, cell_ends, cut, fit

__all__ = ["Build", "Curve", "Positions", "Strategy", "cell_ends", "cut", "fit"]
