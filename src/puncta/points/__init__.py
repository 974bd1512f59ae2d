"""Reads an index: grids and samples of points, and the rows of any region, feature or level."""

from puncta.points._fit import Fit, fit_of
from puncta.points._grid import Box, Grid
from puncta.points._levels import Level
from puncta.points._points import Points, open_points
from puncta.points._question import Count, Explanation

__all__ = ["Box", "Count", "Explanation", "Fit", "Grid", "Level", "Points", "fit_of", "open_points"]
