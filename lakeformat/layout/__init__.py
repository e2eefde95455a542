"""Layouts: the order in which rows lie in files, so that a filter on any of some columns reads few of them."""

from lakeformat.layout.curve import Build, Curve, Strategy, fit

__all__ = ["Build", "Curve", "Strategy", "fit"]
