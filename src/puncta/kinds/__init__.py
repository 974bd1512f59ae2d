"""What is at a path, and whether it is sound: one answer for every kind that puncta knows."""

from puncta.kinds._detect import Kind, kind_of
from puncta.kinds._info import info
from puncta.kinds._validate import validate, validate_report

__all__ = ["Kind", "info", "kind_of", "validate", "validate_report"]
