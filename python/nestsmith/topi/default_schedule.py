"""A schedule for every program, without tuning: what a network runs with until there are records.

The engine makes it (csrc/schedule/default.c). Everything element-wise is inlined, unless the expression would become huge. On a GPU each
remaining stage is one kernel; on a CPU outer loops run in parallel, and a divisor of the innermost one as vector lanes.
"""

import json

from .. import _core
from ..states import core_state

__all__ = ["default_state", "state_from", "steps_of"]

LANES = "lanes"  # attribute of an operation: how many neighbours along its last axis are a vector, though they may not divide it


def default_state(dag, target, wanted=()):
    """A valid :class:`State` of `dag` for `target` (a Target): correct on every target, never measured. `wanted`: operations whose results
    are wanted, though others read them."""
    threads = int(target.attrs.get("max_num_threads", 256)) if "gpu" in target.keys else 0
    return _core.State(dag, dag.default_steps(threads, [i for i, op in enumerate(dag.ops) if op in wanted]))


def steps_of(found):
    """The steps of what a dispatch context answered, as JSON text: a State, or a step list (JSON text or Python list)."""
    found = core_state(found)
    steps = found.steps() if callable(getattr(found, "steps", None)) else getattr(found, "transform_steps", found)
    return steps if isinstance(steps, str) else json.dumps(steps)


def state_from(dag, found):
    """The State of what a dispatch context answered (see :func:`steps_of`), or None."""
    return None if found is None else _core.State(dag, steps_of(found))
