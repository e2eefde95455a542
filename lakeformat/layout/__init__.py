"""Layouts: the order of rows in files, chosen so that a filter on any of some columns reads few files."""

from lakeformat.layout.curve import CurveBuild, Curve, Positions, CurveStrategy, cell_ends, cut_places, fit_curve

__all__ = ["CurveBuild", "Curve", "Positions", "CurveStrategy", "cell_ends", "cut_places", "fit_curve"]
