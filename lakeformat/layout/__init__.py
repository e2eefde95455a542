"""Layouts: the order in which rows lie in files, so that a filter on any of some columns reads few of them."""

from lakeformat.layout.curve import Build, Curve, Positions, Strategy, cell_ends, cut, fit

__all__ = ["Build", "Curve", "Positions", "Strategy", "cell_ends", "cut", "fit"]
