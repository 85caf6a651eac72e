"""Parts of TVM that are not here: whoever asks for one is told what there is instead.

The table serves attributes (an AttributeError, so that ``hasattr`` says no) and imports (a ModuleNotFoundError).
"""

from __future__ import annotations

import sys

__all__ = ["attribute_error"]

_RUN = "compile with relay.build and run with nestsmith.contrib.graph_executor.GraphModule"
INSTEAD = {
    "nestsmith.relay.vm": _RUN,
    "nestsmith.autotvm.graph_tuner": "networks with tuned convolutions keep blocks of channels between them without it; build with the "
    "records, with autotvm.apply_history_best(log): relay.build(...)",
    "nestsmith.meta_schedule": "tune with nestsmith.auto_scheduler",
    "nestsmith.script": "write computations with nestsmith.te",
    "nestsmith.micro": "programs are made for CPUs, CUDA and OpenCL",
    "nestsmith.contrib.debugger": "nestsmith.contrib.graph_executor runs networks; its benchmark() times them",
}


def _text(full):
    return f"{full} is not there yet: {INSTEAD[full]}"


def attribute_error(module, name):
    """The AttributeError of a module that lacks a name."""
    full = f"{module}.{name}"
    return AttributeError(_text(full) if full in INSTEAD else f"module {module!r} has no attribute {name!r}")


class _Finder:
    """Asked last, after everything that can find modules."""

    @staticmethod
    def find_spec(full, path=None, target=None):
        if full in INSTEAD:
            raise ModuleNotFoundError(_text(full))  # without a name: `from nestsmith import autotvm` would drop the text
        return None


if not any(getattr(f, "__module__", None) == __name__ for f in sys.meta_path):
    sys.meta_path.append(_Finder)  # type: ignore[arg-type]
