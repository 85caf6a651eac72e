"""What a task says of the machine it is for."""

import os

from .. import _core, check
from ..target import Target, default_hardware_params

__all__ = ["HardwareParams", "cores"]

FIELDS = _core.HW_FIELDS


def cores():
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class HardwareParams:
    """Eight numbers that describe a machine to the search.

    Fields that are not given take the target's defaults; without a target all must be given.

    Parameters
    ----------
    num_cores : int, optional
    vector_unit_bytes : int, optional
    cache_line_bytes : int, optional
    max_shared_memory_per_block : int, optional
        Bytes.
    max_local_memory_per_block : int, optional
        Bytes.
    max_threads_per_block : int, optional
    max_vthread_extent : int, optional
    warp_size : int, optional
    target : Target or str, optional
        Where missing fields come from.
    target_host : optional
        Accepted and not used.

    Raises
    ------
    ValueError
        If a field is missing and there is no target to take it from.
    """

    def __init__(self, num_cores=None, vector_unit_bytes=None, cache_line_bytes=None, max_shared_memory_per_block=None,
                 max_local_memory_per_block=None, max_threads_per_block=None, max_vthread_extent=None, warp_size=None,
                 target=None, target_host=None):
        given = (num_cores, vector_unit_bytes, cache_line_bytes, max_shared_memory_per_block,
                 max_local_memory_per_block, max_threads_per_block, max_vthread_extent, warp_size)
        missing = [f for f, v in zip(FIELDS, given) if v is None]
        if missing:
            if target is None:
                raise ValueError(f"HardwareParams without a target needs all fields; missing: {', '.join(missing)}")
            target = Target(target) if not isinstance(target, Target) else target
            given = tuple(d if v is None else v for v, d in zip(given, default_hardware_params(target)))
        for field, v in zip(FIELDS, given):
            setattr(self, field, check.integer(field, v, -1))

    def as_tuple(self):
        """The fields in the order in which records store them."""
        return tuple(getattr(self, f) for f in FIELDS)

    def __eq__(self, other):
        return isinstance(other, HardwareParams) and self.as_tuple() == other.as_tuple()

    def __hash__(self):
        return hash(self.as_tuple())

    def __str__(self):
        return "HardwareParams:\n" + "\n".join(f"  {f}: {getattr(self, f)}" for f in FIELDS)

    __repr__ = __str__
