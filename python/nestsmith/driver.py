"""Compiling one operator: ``nestsmith.build(schedule, args, target)``."""

from __future__ import annotations

import json

from nestsmith import _core

from .runtime.module import Module, OperatorModule
from .target import Target

__all__ = ["build"]

_KIND_NAMES = ("c", "cuda", "opencl")


def _state_of(sch, args=None):
    """The engine's State of a schedule (with its arguments), a state of the auto-scheduler, or itself."""
    if isinstance(getattr(sch, "_core", None), _core.Schedule):
        if args is None:
            raise ValueError("the argument tensors of the function are needed: build(schedule, [inputs..., outputs...])")
        return sch._core.state(list(args))
    seen = sch
    for _ in range(3):
        if isinstance(seen, _core.State):
            return seen
        inner = next((getattr(seen, a) for a in ("state_object", "state", "_state") if hasattr(seen, a)), None)
        seen = inner() if callable(inner) and not isinstance(inner, _core.State) else inner
    raise TypeError(
        f"cannot build {type(sch).__name__}; expected a schedule made with te.create_schedule or by the auto-scheduler"
    )


def _order(args, manifest):
    """For each argument of the program its place in the caller's `args`; None if they agree."""
    names = [a["name"] for a in manifest["args"]]
    if len(args) != len(names):
        raise ValueError(
            f"the program has {len(names)} arguments ({', '.join(names)}), args lists {len(args)}; list every "
            "input and output once"
        )
    given = [getattr(getattr(t, "op", t), "name", None) for t in args]
    if given == names or len(set(given)) != len(given) or set(given) != set(names):
        return None
    return [given.index(n) for n in names]


def build(
    inputs, args=None, target=None, target_host=None, runtime=None, name="default_function", binds=None, cache_dir=None
):
    """Lowers and compiles one operator.

    Parameters
    ----------
    inputs : schedule
        From ``te.create_schedule``, ``task.apply_best``, or a state of the auto-scheduler.
    args : list of te.Tensor
        Inputs and outputs, in the order in which the function takes its arrays.
    target : Target or str, optional
        Default: the scope's target, else this CPU.
    name : str
        Name of the function.

    Returns
    -------
    Module
        ``module(a, b, c)`` and ``module[name]`` run it; ``module.time_evaluator(module.entry_name, dev)`` times it.

    Raises
    ------
    ValueError
        If the schedule is illegal for the target.
    RuntimeError
        With the compiler's output if it fails.
    """
    if isinstance(inputs, Module):
        return inputs
    if binds:
        raise ValueError("binds is not supported: buffers are laid out row by row")
    if not name.isidentifier():
        raise ValueError(f"name {name!r} is not an identifier")
    target = Target.canon_target_and_host(target or Target.current() or Target("llvm"), target_host)[0]
    kind, sm, fast_math = engine = target.engine()
    source, manifest = _core.gen_source(
        _state_of(inputs, args), _KIND_NAMES[kind], sm=sm, fast_math=fast_math, mali=target.device_name == "mali", name=name
    )
    order = _order(list(args), json.loads(manifest)) if args is not None else None
    binary, _, _ = _core.build(engine, source, 0, cache_dir)
    return OperatorModule(source, manifest, binary, target, order)
