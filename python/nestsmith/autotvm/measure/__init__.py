"""Measuring of templates: who builds, who runs, and what comes out."""

from . import measure, measure_methods
from .measure import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
from .measure_methods import (
    Builder,
    EngineRunner,
    LocalBuilder,
    LocalRunner,
    Runner,
    create_measure_batch,
    measure_option,
)
