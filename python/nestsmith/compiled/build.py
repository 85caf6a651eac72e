"""``nestsmith.compile``: a model in, a callable out."""

import os
from collections import Counter

from .. import check, relay
from ..auto_scheduler import FallbackContext, extract_tasks
from ..auto_scheduler.display import progress
from ..numerics import LAYOUTS, PRECISIONS
from ..relay import Call, Function, IRModule, Tuple, TupleGetItem, TupleType, post_order, transform as passes
from ..relay.op.nn.winograd import is_mali
from ..relay.passes import PassContext
from ..relay.pipeline import optimize
from ..runtime.device import Device, cuda, device as device_of, opencl
from ..target import Target
from . import early, schedules
from .module import CompiledModule
from .source import read

__all__ = ["compile", "cut", "layout_for", "machine_target", "tasks_of"]


def compile(model, example_inputs=None, *, target="auto", trials=None, log=None, layout="auto", precision="float32",
            tune_seconds=None, shape=None, device=None, guess=True, limits=None, verbose=1):
    """Compiles a model, after tuning it if trials or seconds are given, and returns what runs it.

    Parameters
    ----------
    model : torch.nn.Module, torch.jit.ScriptModule, torch.export.ExportedProgram, str, os.PathLike, bytes, onnx.ModelProto, IRModule or tuple
        A PyTorch model (taken in evaluation mode) or the file of `torch.export.save`, an ONNX model or its file, a relay module or
        ``(module, params)``. The kind of a file is detected from its content.
    example_inputs : array, tuple, list or dict, optional
        Arguments of a call: they say shapes and element types. Needed for a torch.nn.Module; a dictionary holds keywords
        (PyTorch) or inputs by name.
    target : Target or str
        "auto": CUDA if there is a GPU, else an OpenCL GPU, else the CPU.
    trials : int, optional
        Measured candidates that the log shall hold for this network's tasks. What it holds already is not measured again:
        an interrupted call goes on where it ended, a repeated one tunes no more. Fewer than there are tasks without a record are
        rounded up to one for each. 0 or None: no tuning.
    log : str or os.PathLike, optional
        Tuning log to read and to append to. Default: a file for the target in the user's directory of logs
        (NESTSMITH_LOG_DIR, ``~/.local/share/nestsmith/logs``), all of which are looked into in any case.
    layout : str
        Of convolutions: "NHWC", "NCHW", "keep", or "auto": NHWC if the network keeps it from one convolution to the next.
    precision : str
        "float32", "float32x3", "tf32", "float16" or "bfloat16": what the network computes in; inputs and outputs stay what they are. "tf32" is
        float32 whose products may be computed on tensor cores, their factors rounded to 11 bits (CUDA from compute capability
        8.0 on; elsewhere it is float32), "float32x3" with three such products for one, about as accurate as float32. Tensor
        cores compute products of 16-bit floats wherever they are faster.
    tune_seconds : float, optional
        Ends tuning after so many seconds; without `trials` it tunes until then. Each task gets a candidate if there is time for it.
    shape : dict of str to tuple of int, optional
        Shapes of inputs that an ONNX model leaves open.
    device : Device or int, optional
        Where it runs and is tuned; number 0 of the target's kind by default.
    guess : bool
        Tasks of which nothing is known get the first choice of the search, unmeasured; False: the default schedule, which
        takes no time to find and more to run.
    limits : dict of str to float, optional
        What importing the model may take: ``"bytes"``, ``"nodes"``, ``"seconds"``, as in `relay.frontend.from_onnx`.
    verbose : int
        0 prints nothing, 1 the target and progress, 2 every result.

    Returns
    -------
    CompiledModule

    Raises
    ------
    TypeError
        If `model` is none of these, or an argument has the wrong type.
    ValueError
        If the target, a layout, a precision or an example input is wrong, the file is damaged, or importing takes more than `limits`.
    OpNotImplemented
        With all that the model holds and the importer or the target does not know, before anything is tuned.
    RuntimeError
        If a compiler is missing, or no candidate of a tuning run is valid.
    """
    check.one_of_names("layout", layout, LAYOUTS)
    check.one_of_names("precision", precision, PRECISIONS)
    trials = None if trials is None else check.integer("trials", trials, 0)
    target, device = _where(target, device, verbose)
    source = read(model, example_inputs, shape, limits)
    mod, layout, tasks, weights = cut(source, target, layout, precision)
    log = os.fspath(log) if log is not None else None
    if trials or tune_seconds is not None:
        log = log or schedules.default_log(target)
        style = "bar" if verbose == 1 else "none" if not verbose else "auto"
        with progress(style):
            schedules.tune(tasks, weights, target, trials or None, log, tune_seconds, device.device_id, verbose)
    tuned = trials or tune_seconds is not None or log is not None
    with _context(layout, target, precision, early=tuned):
        known = schedules.BestKnown(schedules.known_logs(log), tasks, target, guess)
        with FallbackContext(verbose=0), known:
            lib = relay.build(mod, target=target, params=source.params)
    beside = tuned and target.kind.name == "cuda" and PassContext.current().config.get(_BRANCHES) is None
    lib = early.chosen(lib, device, beside)
    if verbose:
        found = Counter(p.schedule for p in lib.kernels.values()).most_common()
        print(f"nestsmith: {len(lib.kernels)} programs, schedules: {', '.join(f'{n} {text}' for text, n in found) or 'none'}", flush=True)
    return CompiledModule(lib, device, source.name, source.calling, mod, source.params, tasks)


def cut(source, target, layout="auto", precision="float32"):
    """What is compiled of a source: (module in the precision, layout of its convolutions, tasks, how often each occurs)."""
    mod = _in_precision(source.mod, source.params, precision)
    layout = layout_for(mod, source.params, target, layout, precision)
    return mod, layout, *tasks_of(mod, source.params, target, layout, precision)


def machine_target():
    """The target that "auto" stands for: CUDA if there is a GPU, else an OpenCL GPU, else the CPU."""
    if cuda(0).exist:
        return Target("cuda")
    if opencl(0).exist and (opencl(0).warp_size or 1) > 1:  # a CPU's driver says 1
        return Target("opencl")
    return Target("llvm")


def _where(target, device, verbose):
    """(Target, Device) that are meant; says in a line what "auto" has found."""
    auto = isinstance(target, str) and target == "auto"
    target = machine_target() if auto else Target.canon_target(target)
    kind = target.kind.device_type
    device = Device(kind, check.integer("device", device, 0)) if isinstance(device, int) else device_of(device or kind)
    if device.device_type != kind:
        raise ValueError(f"device is {device}; the target {target.kind.name} runs on {Device(kind, 0)}")
    if not device.exist:
        raise ValueError(f"target {target.kind.name}: {device.why_not}")
    if auto and verbose:
        print(f"nestsmith: target {target.kind.name}, {device.device_name or device}", flush=True)
    return target, device


def _in_precision(mod, params, precision):
    if precision not in ("float16", "bfloat16"):
        return mod
    early = "relay.ToMixedPrecision.early_casts"
    with PassContext(opt_level=3, config={early: PassContext.current().config.get(early, False)}):
        typed = passes.Sequential([passes.SimplifyExpr(), passes.InferType()])(mod)  # less to cast
        mixed = passes.Sequential([passes.ToMixedPrecision(precision), passes.InferType()])(typed)
    after = mixed["main"]
    return IRModule.from_expr(Function(after.params, _cast(after.body, typed["main"].body.checked_type)))


def _cast(expr, to):
    """An expression, or the fields of a tuple, in the element types of another type."""
    if not isinstance(to, TupleType):
        return relay.cast(expr, to.dtype)
    parts = expr.fields if isinstance(expr, Tuple) else [TupleGetItem(expr, i) for i in range(len(to.fields))]
    return Tuple([_cast(e, t) for e, t in zip(parts, to.fields)])


# ---- layout ----
def layout_for(mod, params, target, layout, precision="float32"):
    """The layout that convolutions are brought into; None: the one that they have."""
    if layout == "keep":
        return None
    if layout != "auto":
        return layout
    if _convolutions(mod["main"].body, "NCHW") < 2:
        return None
    with _context("NHWC", target, precision):
        body = optimize(mod, target, params)["main"].body
    moved = sum(isinstance(e, Call) and e.op_name in ("layout_transform", "transpose") for e in post_order(body))
    return "NHWC" if 2 * moved <= _convolutions(body, "NHWC") + 4 else None


def _convolutions(body, layout):
    """How many two-dimensional convolutions of a network are in a layout."""
    convolutions = (e for e in post_order(body) if isinstance(e, Call) and "conv2d" in str(e.op_name))
    return sum(getattr(e.attrs, "data_layout", "") == layout for e in convolutions)


_ON_CPUS = "relay.FuseOps.expansions", "relay.FuseOps.first_layout", "relay.fill_channels", "relay.join_in_place"
_ON_GPUS = ("relay.FuseOps.into_products", "relay.column_weights", "relay.for_tensor_cores", "relay.parts_of_sums",
            "relay.whole_norms")
_OVERLAP, _BRANCHES = "nestsmith.overlap", "nestsmith.branches"  # asked for by the user, of this call too
_HALF_SUMS = "nestsmith.allow_fp16_accumulation"  # the user's
# Where products are by lanes, too: tensor cores take their factors as they lie in memory.
_GATES, _FIRST_LAYOUT = "relay.FuseOps.gates", "relay.FuseOps.any_first_layout"


def _context(layout, target, precision, early=False):
    """Settings of a build, with what makes networks faster and tasks other than those of `extract_tasks` alone. `early`: programs
    with waits are made, too, unless the user has said whether there are to be any."""
    config = {"relay.backend.use_auto_scheduler": True, "relay.late_reshape": True, "relay.flat_weights": True}
    asked = PassContext.current().config.get(_OVERLAP)
    config |= {_OVERLAP: bool(asked), _BRANCHES: bool(PassContext.current().config.get(_BRANCHES))}
    config["relay.early_twins"] = bool(early and asked is None and target.kind.name == "cuda")
    if "cpu" in target.keys or target.has_lane_products:
        config["relay.winograd"] = PassContext.current().config.get("relay.winograd", "measured")
    if "cpu" in target.keys:
        config |= dict.fromkeys(_ON_CPUS, True)
    if "gpu" in target.keys:
        strict = PRECISIONS[precision] == "strict" and precision == "float32"
        lanes = strict or PRECISIONS[precision] == "float32x3"
        config |= dict.fromkeys(_ON_GPUS, True) | {_GATES: strict, _FIRST_LAYOUT: lanes and target.has_lane_products}
        config["relay.FuseOps.pools"] = not is_mali(target)
    config[_HALF_SUMS] = bool(PassContext.current().config.get(_HALF_SUMS))
    if target.on_tensor_cores("float32") and PRECISIONS[precision] != "strict":
        config[f"nestsmith.allow_{PRECISIONS[precision]}"] = True
        config |= dict.fromkeys(("relay.column_weights", "relay.parts_of_sums"), False)  # they read by rows, and add up in parts themselves
    return PassContext(opt_level=3, config={**config, "relay.ext.layout": layout} if layout else config)


def tasks_of(mod, params, target, layout, precision="float32"):
    """Tasks of a network as `compile` builds it, and how often each occurs."""
    with _context(layout, target, precision):
        return extract_tasks(mod, params, target, layout=layout)
