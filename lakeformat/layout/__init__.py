"""Layouts: the order of rows in files, chosen so that a filter on any of some columns reads few files."""

from lakeformat.layout.curve import Curve, CurveBuild, CurveStrategy, Positions, cell_ends, cut_places, fit_curve

__all__ = ["Curve", "CurveBuild", "CurveStrategy", "Positions", "cell_ends", "cut_places", "fit_curve"]
