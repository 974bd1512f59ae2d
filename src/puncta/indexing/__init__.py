"""Builds an index: a table of molecules in, a tiled, multiscale points element out."""

from puncta.indexing._convert import ConvertReport, convert_points
from puncta.indexing._index import index_points
from puncta.indexing._report import IndexReport

__all__ = ["ConvertReport", "IndexReport", "convert_points", "index_points"]
