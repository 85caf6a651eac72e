"""Measuring of templates."""

from . import measure
from .measure import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
