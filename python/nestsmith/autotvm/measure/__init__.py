"""Measuring of templates: who builds, who runs, and what comes out."""

import importlib as _importlib

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


def __getattr__(name):
    if name in ("RPCRunner", "default_module_loader", "request_remote"):  # these need the extra `cluster`
        return getattr(_importlib.import_module(".remote", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
