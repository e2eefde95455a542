"""Layouts: orders of the rows in files, by which a filter on any of several columns reads few files."""

from lakeformat.layout.curve import Curve, CurveBuild, CurveStrategy, Positions, cell_ends, cut_places, fit_curve

__all__ = ["Curve", "CurveBuild", "CurveStrategy", "Positions", "cell_ends", "cut_places", "fit_curve"]
