"""Measuring of templates: who builds, who runs, and what comes out."""

from ... import _absent
from . import executor, measure, measure_methods
from .measure import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
from .measure_methods import *  # noqa: F403

for _what in ("Builder", "Runner", "create_measure_batch", "measure_option"):  # TVM's place for them
    setattr(measure, _what, getattr(measure_methods, _what))


def __getattr__(name):
    if name in measure_methods.REMOTE:
        return getattr(measure_methods, name)
    raise _absent.attribute_error(__name__, name)
