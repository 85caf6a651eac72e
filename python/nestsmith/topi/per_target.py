"""Schedules and definitions of operators by target: ``topi.x86.schedule_softmax(outs)``, ``topi.cuda.conv2d_nchw(...)``.

A ``schedule_*`` function takes the outputs (and whatever TVM's takes beside them) and gives the schedule of the template that
defined them, if there is one, else the default schedule for the target in scope. All other names are templates of
AutoTVM or operators of :mod:`nestsmith.topi` and :mod:`nestsmith.topi.nn`.
"""

import importlib.abc
import importlib.machinery
import re
import sys

from .. import _absent, _core, autotvm, te, topi
from ..autotvm.task.task import TASK_TABLE
from ..autotvm.task.topi_integration import get_workload
from ..target import Target
from ..te.operation import operations
from ..te.schedule import AutoInlineInjective, schedule_from_state
from .default_schedule import default_state

__all__ = ["of", "schedule", "schedule_stage"]

# module -> target whose schedules it has
_TARGETS = {"cuda": "cuda", "mali": "opencl", "bifrost": "opencl", "adreno": "opencl", "intel_graphics": "opencl", "rocm": "opencl"}
_TARGETS["gpu"] = "cuda"
_LIKE = {"intel_graphics": "cuda", "gpu": "cuda", "rocm": "cuda", "adreno": "mali"}
_TEMPLATES = {"bifrost": "mali", "gpu": "gpu"}  # module -> end of its templates' names, where that is another word


# What TVM's names have behind the operator's: how it is computed, which is the schedule's concern.
_VARIANT = r"(_spatial_pack|_winograd(_tensorcore|_direct)?|_tensorcore|_nopack|_pack|_cblas|_mkl|_dnnl|_small_batch|_large_batch|_tuning)+$"


def _outputs(args):
    for a in args:
        if isinstance(a, te.Tensor):
            return [a]
        if isinstance(a, (list, tuple)) and a and all(isinstance(t, te.Tensor) for t in a):
            return list(a)
    raise TypeError(f"schedule: the arguments {args!r} hold no output; pass a te.Tensor or a list of them")


def _is_static(op):
    known = isinstance(op, (te.ComputeOp, te.PlaceholderOp))
    return known and all(isinstance(s, int) for i in range(op.num_outputs) for s in op.output(i).shape)


def schedule(outs, default="llvm"):
    """The schedule of tensors that are computed together.

    Parameters
    ----------
    outs : te.Tensor or list of te.Tensor
    default : str
        The target where none is in scope.

    Returns
    -------
    te.Schedule
        Simple loops if an extent is not known, or an operation is no ``te.compute``.
    """
    outs = _outputs([outs])
    workload, target = get_workload(outs), Target.current() or Target(default)
    half = TASK_TABLE.get(workload[0]) if workload else None
    if half is not None and half.fschedule is not None:
        with target:
            return half.fschedule(outs)
    if not all(_is_static(op) for op in operations([t.op for t in outs])):
        return _plain(te.create_schedule([t.op for t in outs]), target)
    dag = _core.ComputeDAG(outs)
    return schedule_from_state(dag, default_state(dag, target, [t.op for t in outs]))[0]


def _plain(sch, target):
    """A schedule whose sizes are not known: plain loops, on a GPU one kernel for each stage that is no injective one."""
    if "gpu" in target.keys:
        AutoInlineInjective(sch)
        with target:
            for stage in sch.stages:
                if not stage.op.is_placeholder and stage.attach_type == 1 and len(stage.op.axis):
                    schedule_stage(sch, stage)
    return sch


def schedule_stage(sch, out):
    """Fuses the loops of ``out`` in a schedule that exists and runs them in parallel, or on the threads of a GPU; returns the schedule."""
    stage = sch[out]
    fused = stage.fuse(*[a for a in stage.leaf_iter_vars if a in list(stage.op.axis)])
    target = Target.current()
    if target is not None and "gpu" in target.keys:
        outer, inner = stage.split(fused, factor=int(target.attrs.get("max_num_threads", 256)))
        stage.bind(outer, te.thread_axis("blockIdx.x"))
        stage.bind(inner, te.thread_axis("threadIdx.x"))
    else:
        stage.parallel(fused)
    return sch


def _scheduler(name, default):
    def scheduled(*args, **kwargs):
        return schedule(_outputs((*args, *kwargs.values())), default)

    return topi.util.named(scheduled, name, f"``{name}(outs)``: :func:`schedule` of the outputs.")


def of(module):
    """The ``__getattr__`` of the module of a target."""
    default = _TARGETS.get(module, "llvm")

    def getattribute(name):
        if name == "__path__":  # it has modules, such as topi.cuda.depthwise_conv2d, with the same names
            return []
        if name == "schedule_injective_from_existing":
            return schedule_stage
        if name.startswith("schedule_"):
            return _scheduler(name, default)
        half = TASK_TABLE.get(f"{name}.{_TEMPLATES.get(module, module)}") or TASK_TABLE.get(f"{name}.{_LIKE.get(module)}")
        if half is not None and half.fcompute is not None:
            return half.fcompute
        plain = re.sub(_VARIANT, "", name)
        for room in () if name.startswith("__") else (topi.nn, topi, topi.image, topi.vision):
            if hasattr(room, plain):
                return getattr(room, plain)
        raise _absent.attribute_error(f"nestsmith.topi.{module}", name)

    return getattribute


class _Parts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the modules of targets: TVM's files. What one has, all have."""

    def find_spec(self, name, path=None, target=None):
        package, _, leaf = name.rpartition(".")
        ours = package.rpartition(".")
        known = ours[0] == "nestsmith.topi" and ours[2] in _MODULES and leaf in _FILES
        return importlib.machinery.ModuleSpec(name, self) if known else None

    def exec_module(self, module):
        module.__getattr__ = of(module.__name__.split(".")[2])


_MODULES = ("adreno", "arm_cpu", "bifrost", "cuda", "generic", "gpu", "hexagon", "hls", "intel_graphics", "mali", "rocm", "x86")
_FILES = set("""
    argwhere batch_matmul conv1d conv1d_transpose_ncw conv2d conv2d_transpose conv2d_transpose_nchw conv2d_winograd conv3d conv3d_transpose
    conv3d_transpose_ncdhw default dense depthwise_conv2d extern group_conv2d_nchw image injective math nn pooling reduction roi_align search
    softmax sort transform unique
    """.split())
sys.meta_path.append(_Parts())
_ = autotvm.templates  # their functions are registered
