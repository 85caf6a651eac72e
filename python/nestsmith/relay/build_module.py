"""``relay.build``: graph passes, one program per distinct fused function, storage plan, library.

Every program gets its schedule from the provider of :mod:`relay.schedules` (the auto-scheduler's dispatch contexts) or, if it has
none, a default one. Programs are compiled in parallel and through the on-disk cache.
"""

import copy
import json
import logging
import os
import warnings
from concurrent.futures import ThreadPoolExecutor

from .. import _core
from ..compiling import compile_source
from ..driver import engine_of
from ..error import TVMValueError
from ..numerics import float32_mode
from ..runtime.graph import GraphExecutorFactoryModule
from ..target import Target, default_hardware_params
from ..topi.default_schedule import default_state, state_from
from . import extract, lowering, schedules
from .expr import Expr
from .graph_codegen import generate, side_by_side
from .module import IRModule
from .packing import Packing, rewrites
from .passes import PassContext
from .pipeline import as_module, fuse_module, optimize as _optimize
from .transform.basic import bind_params_by_name
from .transform.join_in_place import JoinInPlace

__all__ = ["build", "optimize", "bind_params_by_name", "Program"]

logger = logging.getLogger("nestsmith")
_TWINS = (1, 2)  # overlap of programs that a network is tried with: they wait; they let the next one begin at half, too


class Program:
    """A compiled function: `name`, `source`, `manifest`, `binary`, `arg_index` (which parameter each input is),
    `origin`
    ("tuned", "default" or "reshape"), `schedule` (where its schedule comes from, in words), `made` (the Implementation
    by a template, or None), `key` (workload key, "" if it has none), `keys` (that and its names in other releases), `found`
    (whether a schedule was), `why` (why a found schedule was not
    used), `constant` (parameters that are constants in every call), `relaid` (input -> Packing: inputs whose data must be
    brought into another form), `products` (what they are of where they may be on tensor cores, or ""), `early` (the same program
    with waits, as `nestsmith.overlap` makes them, and one that lets the next begin; or nothing), `join` and
    `joined` (what `JoinInPlace` says: None and (0, 0) if nothing)."""

    __slots__ = ("name", "kernel", "reshape", "join", "joined", "arg_index", "made", "dag", "key", "keys", "found",
                 "origin", "schedule", "why", "source", "manifest", "binary", "cached", "constant", "relaid",
                 "products", "early")  # fmt: skip

    def __init__(self, kernel):
        self.kernel, self.name = kernel, kernel.name
        self.reshape = bool(kernel.func.attrs.get("reshape_only"))
        self.join, self.joined = kernel.func.attrs.get("join"), kernel.func.attrs.get("joined", (0, 0))
        self.arg_index, self.dag, self.key, self.why = [], None, "", ""
        self.origin = "reshape" if self.reshape else "default"
        self.keys, self.found, self.schedule, self.made = [], False, "default", None
        self.source = self.manifest = self.binary = None
        self.cached = False
        self.constant, self.relaid, self.products, self.early = frozenset(), {}, "", ()

    @property
    def empty(self):
        """Whether there is nothing to run: what it makes is in memory already."""
        return self.reshape or self.join is not None

    def constants(self):
        """Bit k: argument k is a constant in every call."""
        return sum(1 << k for k, at in enumerate(self.arg_index) if at in self.constant and k < 64)


def _engine_target(target, overlap=0):
    return target.engine(default_hardware_params(target), overlap=overlap)


def _products(dag, target):
    """What the products of a program are of where they may be on tensor cores: "float16", "tf32", ...; else ""."""
    factors = _core.State(dag, "[]").factors() if target.has_tensor_cores else ""
    mode = float32_mode(PassContext.current().config)
    if not target.on_tensor_cores(factors):
        return ""
    return factors if factors != "float32" else "" if mode == "strict" else mode


def _prepare(kernel, target, provider, templates, constant):
    """A program with its DAG, and the schedule that the provider has for it (None: none)."""
    p = Program(kernel)
    p.constant = constant
    if p.empty:
        return p, None
    if not kernel.static:
        raise TVMValueError(f"{kernel.name}: a dimension is known only at run time; give all shapes before building")
    low, *others = lowering.lowered(kernel.func, target) if provider else [lowering.lower_function(kernel.func, target)]
    where = {t: i for i, t in enumerate(low.params)}
    p.arg_index = [where[t] for t in low.io[: len(low.io) - len(low.outputs)]]
    p.dag = _core.ComputeDAG(low.io)
    p.products = _products(p.dag, target)
    found = None
    if provider:
        p.keys, found = provider.find(target, [low.io, *(other.io for other in others)], p.name)
        p.key = p.keys[0]
    p.found = found is not None
    if p.found:
        p.schedule = provider.origin(target, p.keys)
    elif templates:
        try:
            p.made = templates.implement(kernel.func, target, constant)
        except ValueError as err:
            p.why = f"its template failed: {err}"
        if p.made is not None:
            p.schedule = p.made.origin
    return p, found


def _template_source(p, engine):
    """(source, manifest) of the implementation by a template."""
    low, schedule, packed, _ = p.made
    inputs = low.io[: len(low.io) - len(low.outputs)]
    where = {t: i for i, t in enumerate(low.params)}
    source, manifest = _core.program(schedule._core, low.io, engine, _core.BUILD_NAME)
    p.arg_index = [where[packed[t][0] if t in packed else t] for t in inputs]
    p.relaid = {k: packed[t][1] for k, t in enumerate(inputs) if t in packed}
    return source, manifest


def _tuned_source(p, state, option, target, engine):
    """(source, manifest) with the weights in the layout in which they were measured."""
    option = rewrites(option, p.dag, {k for k, at in enumerate(p.arg_index) if at in p.constant}, target)
    source, manifest = _core.candidate_source(state, engine, option, _core.BUILD_NAME, p.constants(), *p.joined)
    relaid = {k: a for k, a in enumerate(json.loads(manifest)["args"]) if "axis" in a}
    p.relaid = {k: Packing(*(tuple(a[x]) for x in ("from_shape", "shape", "axis"))) for k, a in relaid.items()}
    return source, manifest


def _compile(p, found, target, engine, hand, option, stop):
    """Fills in source, manifest and binary; runs in a worker thread. `hand`: the engine's target for hand-written schedules."""
    if found is not None or p.made is not None:
        try:
            if found is not None:
                p.source, p.manifest = _tuned_source(p, state_from(p.dag, found), option, target, engine)
            else:
                p.source, p.manifest = _template_source(p, hand)
            p.origin = "tuned"
        except (ValueError, RuntimeError) as err:
            p.why = f"{'steps did not replay' if found is not None else 'its template failed'}: {err}"
            p.schedule = "default"
    if p.source is None:
        state = default_state(p.dag, target)
        p.source, p.manifest = _core.candidate_source(state, engine, 0, _core.BUILD_NAME, p.constants(), *p.joined)
    # Compiled under the name that candidates have, so that a tuned program is in the cache; then it gets its own.
    of_steps = p.origin == "tuned"
    if len(p.name) <= len(_core.BUILD_NAME):
        p.binary, p.cached = compile_source(target, p.source, p.name, of_steps, stop=stop)
    p.source, p.manifest = (t.replace(_core.BUILD_NAME, p.name) for t in (p.source, p.manifest))
    if p.binary is None or target.kind.device_type == 4:
        p.binary, p.cached = compile_source(target, p.source, p.name, of_steps, stop=stop)  # OpenCL: the text itself
    elif target.kind.device_type == 2:
        p.binary = _core.build_rename(p.binary, p.name)
    return p


def _compile_all(p, found, target, pairs, option, stop):
    """`_compile`, and with all pairs of engines but the first again for `early`, where the GPU can. They take the same weights."""
    twins = [copy.copy(p) for _ in pairs[1:]]
    _compile(p, found, target, *pairs[0], option, stop)
    early = []
    for twin, pair in zip(twins, pairs[1:]):
        try:
            _compile(twin, found, target, *pair, option, stop)
        except RuntimeError as err:
            if stop.is_set():
                raise
            logger.warning("%s: not compiled to begin early: %s", p.name, err)
            continue
        waits = any(k.get("waits") for k in json.loads(twin.manifest)["kernels"])
        if waits and (twin.origin, twin.arg_index, twin.relaid) == (p.origin, p.arg_index, p.relaid):
            early.append(twin)
    p.early = tuple(early)


def _can_join(target, templates):
    """Whether kernels may write into a part of a larger tensor: on CPUs. OpenCL cannot offset memory, programs for CUDA were not tried,
    and those of templates do not know how."""
    return target.kind.device_type == 1 and not templates


def _rank(func, target, provider):
    """What the records of a fused function are worth, the smaller the better, or None."""
    try:
        return provider.rank(target, [low.io for low in lowering.lowered(func, target)])
    except ValueError:  # the build tells, should it be built
        return None


def compile_module(mod, target):
    """(fused module, programs by the id of every call, distinct programs) of an optimized module."""
    provider, templates = schedules.asked(), schedules.templates()
    config = PassContext.current().config
    fused = fuse_module(mod, target=target, rank=provider and (lambda func: _rank(func, target, provider)))
    if config.get("relay.join_in_place") and _can_join(target, templates):
        fused = JoinInPlace()(fused)
    kernels, calls = extract.collect_kernels(fused, "tvmgen_default_")
    overlaps = [int(config.get("nestsmith.overlap", False)), *(_TWINS if config.get("relay.early_twins", False) else ())]
    option = provider.layout(target) if provider else 0
    constant, _ = extract.constants_of(fused, calls)
    prepared, failed = [], []
    for k in kernels:
        try:
            prepared.append(_prepare(k, target, provider, templates, constant.get(id(k), frozenset())))
        except lowering.NotLowerable as err:
            failed.append((k, err))
    if failed:
        raise lowering.refusal(failed, target)
    jobs = [(p, found) for p, found in prepared if not p.empty]
    engines, made = [_engine_target(target, o) for o in overlaps], any(p.made for p, _ in jobs)
    hands = [engine_of(target, o) for o in overlaps] if made else engines  # here: drivers are not asked by two threads at once
    pairs = list(zip(engines, hands))
    stop, pool = _core.Stop(), ThreadPoolExecutor(max_workers=max(1, min(len(jobs), os.cpu_count() or 1)))
    try:
        for done in [pool.submit(_compile_all, p, found, target, pairs, option, stop) for p, found in jobs]:
            done.result()
    finally:  # after an error or Ctrl-C the others do not matter any more
        stop.set()
        pool.shutdown(cancel_futures=True)
    programs = [p for p, _ in prepared]
    by_kernel = {id(p.kernel): p for p in programs}
    return fused, {call: by_kernel[id(k)] for call, k in calls.items()}, programs


def _report(programs, nbytes):
    real = [p for p in programs if not p.empty]
    tuned = [p for p in real if p.origin == "tuned"]
    logger.info("schedules: %d tuned, %d default; planned memory: %.1f MiB", len(tuned), len(real) - len(tuned),
                nbytes / 2**20)  # fmt: skip
    for p in real:
        if p.why:
            logger.warning("%s: %s; the default schedule is used", p.name, p.why)


def _arguments(args, kwargs):
    """target, target_host, params and mod_name from any of the argument orders of past releases."""
    out = {"target": None, "target_host": None, "params": None, "mod_name": "default"}
    ignored = {"executor", "runtime", "workspace_memory_pools", "constant_memory_pools"}
    for name, value in zip(("target", "target_host"), args[:2]):
        out[name] = value
    for value in args[2:]:
        if isinstance(value, dict):
            out["params"] = value
        elif isinstance(value, str):
            out["mod_name"] = value
    if isinstance(out["target_host"], dict):  # build(mod, target, params)
        out["params"], out["target_host"] = out["target_host"], None
    for name, value in kwargs.items():
        if name not in out and name not in ignored:
            raise TypeError(f"relay.build has no argument {name!r}; it takes target, target_host, params and mod_name")
        if name in out:
            out[name] = value
    return out


def build(ir_mod, *args, **kwargs):
    """Compiles a network.

    Parameters
    ----------
    ir_mod : IRModule or relay.Function
    *args, **kwargs
        target : Target or str, optional
            Default: the target of the enclosing ``with Target(...)``.
        target_host : Target or str, optional
            Deprecated; write ``Target(target, host=...)``.
        params : dict of str to array, optional
            Values of parameters of ``main``; they become constants.
        mod_name : str
            Key under which the factory gives the executor, "default".

            By name, or by place in the order of any release: a dict is `params`, a second target `target_host`.

    Returns
    -------
    GraphExecutorFactoryModule
        ``lib["default"](device)`` gives what :class:`contrib.graph_executor.GraphModule` takes.

    Raises
    ------
    ValueError
        If there is no target, a dimension is known only at run time, or operators have no definition as loops (all are
        named).
    TypeError
        If `ir_mod` is no module or an argument is unknown.
    RuntimeError
        If a compiler is missing or fails.
    """
    a = _arguments(args, kwargs)
    if not isinstance(ir_mod, IRModule):
        if not isinstance(ir_mod, Expr):
            raise TypeError(f"relay.build takes an IRModule, not {type(ir_mod).__name__}")
        warnings.warn("relay.build of a bare function is deprecated; wrap it with IRModule.from_expr",
                      DeprecationWarning, stacklevel=2)  # fmt: skip
    if a["target_host"] is not None:
        warnings.warn("target_host is deprecated; write Target(target, host=...)", DeprecationWarning, stacklevel=2)
    target = a["target"]
    if isinstance(target, dict) and "kind" not in target and len(target) == 1:
        target = next(iter(target.values()))
    target = Target.current() if target is None else target
    if target is None:
        raise ValueError("relay.build needs a target, for example target='cuda', or an enclosing `with Target(...)`")
    target, _ = Target.canon_target_and_host(target, a["target_host"])
    mod = as_module(ir_mod)
    names = [p.name_hint for p in mod["main"].params]
    mod = _optimize(mod, target, a["params"])
    fused, calls, programs = compile_module(mod, target)
    tasks = [(p.keys, p.found) for p in programs if p.keys and extract.has_reduction(p.dag)]
    if tasks:
        schedules.asked().tell(ir_mod, a["params"], target, tasks)
    if schedules.templates():
        schedules.templates().tell(target, [(p.kernel.func, p.origin == "tuned") for p in programs if not p.empty])
    code = generate(fused["main"], calls, target.kind.device_type)
    beside = target.kind.name == "cuda" and PassContext.current().config.get("nestsmith.branches")
    _report(programs, code.bytes)
    kernels = {p.name: p for p in programs if not p.empty}
    text = beside and side_by_side(code.json) or code.json
    return GraphExecutorFactoryModule(text, kernels, code.params, a["mod_name"], target, names, code.forms)


def optimize(mod, target=None, params=None):
    """Graph passes up to fusion, exclusive: (module, params that are still used). Raises ValueError
    without a target.
    """
    target = Target.current() if target is None else Target.canon_target(target)
    if target is None:
        raise ValueError("relay.optimize needs a target")
    return _optimize(mod, target, params), {}
