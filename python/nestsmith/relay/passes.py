"""Passes over modules and the context that configures them.

A pass maps a module to a module. In a sequence it runs only if the context's ``opt_level`` is at least the pass's own level (or
the pass is
required) and it is not disabled. Contexts nest; the inner one replaces the outer, it does not merge with it.
"""

import functools
import inspect
import sys

from .. import check
from ..states import contexts
from ..tir.stmt import PrimFunc
from .expr import Function
from .module import IRModule

__all__ = ["FunctionPass", "ModulePass", "Pass", "PassContext", "PassInfo", "PrintIR", "Sequential", "function_pass", "module_pass"]

_CONFIGS = {
    "relay.backend.use_auto_scheduler": "bool: kernels come from the auto-scheduler's records",
    "relay.backend.use_meta_schedule": "bool: accepted and ignored",
    "relay.backend.use_meta_schedule_dispatch": "int: accepted and ignored",
    "relay.backend.tir_converter": "str: accepted and ignored",
    "relay.FuseOps.max_depth": "int: most operators in one fused function (default 256)",
    "relay.FuseOps.expansions": "bool: a depthwise convolution takes in the 1x1 convolution, or an image's first, that only it reads (NHWC, CPUs)",
    "relay.FuseOps.first_layout": "bool: a convolution takes in the change to NHWC of an input image that only it reads",
    "relay.FuseOps.any_first_layout": "bool: as first_layout, whatever the size of the convolution's window (GPUs)",
    "relay.FuseOps.gates": "bool: a 1x1 convolution takes in the product of its data and a number for each channel (NHWC)",
    "relay.FuseOps.into_products": "bool: products of matrices take in moves of their operands (OwnMoves runs before)",
    "relay.FuseOps.pools": "bool: a convolution in Winograd's tiles takes in the 2x2 pool that only reads it (NHWC, GPUs)",
    "relay.FuseOps.link_params": "bool: constants stay inside the fused functions",
    "relay.fallback_device_type": "int: accepted and ignored",
    "relay.frontend.fill_span": "bool: importers note on what they make which part of the model it is of (default True)",
    "relay.ToMixedPrecision.early_casts": "bool: ToMixedPrecision casts what is reshaped before it is",
    "relay.ToMixedPrecision.keep_orig_output_dtype": "bool: results of ToMixedPrecision keep their type",
    "relay.ext.layout": "str: layout of convolutions in task extraction and build ('' keeps the model's)",
    "relay.winograd": "str: 'auto' (default), 'never', 'always', 'fastest' or 'measured' for 3x3 stride-1 NHWC convolutions; never with TF32",
    "relay.column_weights": "bool: ColumnWeights runs, for dense layers of many rows on GPUs",
    "relay.for_tensor_cores": "bool: ForTensorCores runs: channels and weights of convolutions as tensor cores copy them best",
    "relay.early_twins": "bool: programs for CUDA are compiled without waits, with them, and so that the next one may begin, to be compared",
    "relay.fill_channels": "bool: FillChannels runs, for last convolutions whose channels do not fill the vectors of a CPU",
    "relay.flat_weights": "bool: FlatWeights runs, for dense layers behind flattened images of NHWC convolutions",
    "relay.join_in_place": "bool: JoinInPlace runs: kernels write the parts of concatenations where they will lie, on CPUs",
    "relay.late_reshape": "bool: SimplifyMoves and LateReshape run, for products whose results importers reshape",
    "relay.parts_of_sums": "bool: float32 products of few elements and long sums are added up in parts, for GPUs",
    "relay.whole_norms": "bool: a layer norm over the last axis stays one operator",
    "nestsmith.allow_tf32": "bool: products of float32 may be computed on tensor cores, their factors rounded to TF32",
    "nestsmith.allow_float32x3": "bool: such products may be sums of three of TF32, about as accurate as float32",
    "nestsmith.allow_fp16_accumulation": "bool: products of float16 whose sums become float16 may be added up in float16 on tensor cores",
    "nestsmith.overlap": "bool: kernels of a CUDA graph begin while the ones before end (compute capability 9.0 on); unset: compile measures both",
    "nestsmith.branches": "bool: kernels of a CUDA graph run side by side where they need nothing of each other; unset: compile measures both",
    "te.keep_schedule_record": "bool: te schedules have schedule_record and primitive_record: what each primitive left",
    "tir.disable_vectorize": "bool: no vector instructions",
    "tir.disable_assert": "bool: accepted and ignored",
    "tir.add_lower_pass": "list of (number, pass): passes of tir.transform.prim_func_pass over what lower gives, in the order of the numbers",
    "tir.noalias": "bool: accepted and ignored",
    "tir.enable_debug": "bool: accepted and ignored",
    "tir.UnrollLoop": "dict: unrolling limits",
    "tir.instrument_bound_checkers": "bool: accepted and ignored",
}


class PassContext:
    """Settings for passes and builds, used as a context manager.

    Parameters: `opt_level` (int), `required_pass` and `disabled_pass` (lists of pass names), `instruments` (of
    :mod:`nestsmith.ir.instrument`: they see every pass, and may keep it from running),
    `config` (dictionary; unknown keys raise ValueError with the nearest known one).
    """

    def __init__(self, opt_level=2, required_pass=None, disabled_pass=None, instruments=None, config=None):
        self.opt_level = check.integer("opt_level", opt_level, 0)
        self.required_pass = list(required_pass or [])
        self.disabled_pass = list(disabled_pass or [])
        self.instruments = list(instruments or [])
        self.config = dict(config or {})
        for key in self.config:
            if key not in _CONFIGS:
                hint = check.did_you_mean(key, _CONFIGS) or f"; known keys: {', '.join(_CONFIGS)}"
                raise ValueError(f"unknown configuration key {key!r}{hint}")
            if _CONFIGS[key].startswith("bool:") and self.config[key] not in (True, False):
                raise ValueError(f"configuration key {key!r} is {self.config[key]!r}; it must be True or False")

    def __enter__(self):
        self._enter_instruments()
        contexts().append(self)
        return self

    def __exit__(self, *exc):
        contexts().remove(self)
        self._exit_instruments()

    def _enter_instruments(self):
        entered = []
        try:
            for i in self.instruments:
                i.enter_pass_ctx()
                entered.append(i)
        except BaseException:
            self.instruments = []
            for i in entered:
                i.exit_pass_ctx()
            raise

    def _exit_instruments(self):
        try:
            for i in self.instruments:
                i.exit_pass_ctx()
        except BaseException:
            self.instruments = []
            raise

    def override_instruments(self, instruments):
        """Other instruments from here on; those that there are leave the context, the new ones enter it."""
        self._exit_instruments()
        self.instruments = list(instruments or [])
        self._enter_instruments()

    def enabled(self, name, level):
        """Whether a pass of this name and level runs."""
        return name not in self.disabled_pass and (name in self.required_pass or self.opt_level >= level)

    @staticmethod
    def current():
        """The innermost context of this thread (a default one outside any)."""
        stack = contexts()
        return stack[-1] if stack else _DEFAULT

    @staticmethod
    def list_configs():
        """Known configuration keys: {key: {"type": of its value, "description": its meaning}}."""
        kinds = {"bool": "IntImm", "int": "IntImm", "str": "runtime.String", "dict": "Map"}
        return {k: {"type": kinds.get(v.partition(":")[0], "ObjectRef"), "description": v} for k, v in _CONFIGS.items()}


_DEFAULT = PassContext()


class PassInfo:
    """What is known of a pass: its name, its level, the passes that it requires."""

    def __init__(self, opt_level, name, required=None, traceable=False):
        self.opt_level, self.name, self.required, self.traceable = opt_level, name, list(required or []), traceable

    def __repr__(self):
        return f"PassInfo({self.name!r}, opt_level={self.opt_level})"


class Pass:
    """A named pass with a level; call it with a module (or a function) to get a new one. Whether the context's level lets it run is asked
    by :class:`Sequential`: who calls a pass wants it."""

    def __init__(self, name, opt_level, run):
        self.name, self.opt_level, self._run = name, opt_level, run

    info = property(lambda self: self, doc="The pass itself, which has `name` and `opt_level`.")

    def __call__(self, mod):
        ctx = PassContext.current()
        return self._watched(mod, ctx) if ctx.instruments else self._run(mod, ctx)

    def _watched(self, mod, ctx):
        if self.name not in ctx.required_pass and not all([i.should_run(mod, self.info) for i in ctx.instruments]):
            return mod
        for i in ctx.instruments:
            i.run_before_pass(mod, self.info)
        mod = self._run(mod, ctx)
        for i in ctx.instruments:
            i.run_after_pass(mod, self.info)
        return mod

    def __repr__(self):
        return f"<pass {self.name}, level {self.opt_level}>"


class ModulePass(Pass):
    """A pass that :func:`module_pass` made."""


class FunctionPass(Pass):
    """A pass that :func:`function_pass` made."""


class PrimFuncPass(Pass):
    """A pass that :func:`prim_func_pass` made."""


class Sequential(Pass):
    """Runs passes in order. Raises TypeError if one of them is not callable."""

    def __init__(self, passes=None, opt_level=0, name="sequential", required=None, traceable=False):
        self.passes = list(passes or [])
        for p in self.passes:
            if not callable(p):
                raise TypeError(f"{p!r} is no pass")
        super().__init__(name, opt_level, self._all)

    def _all(self, mod, ctx):
        for p in self.passes:
            if not isinstance(p, Pass) or ctx.enabled(p.name, p.opt_level):
                mod = p(mod)
        return mod


def _pass_of(f, base, method, name, opt_level, over):
    """The pass of a function, or of a class: then a function that makes its pass from the arguments of an object, whose `method` it is."""

    def make(kind, called):
        return base(name or kind.__name__, opt_level, over(called))

    if not inspect.isclass(f):
        return make(f, f)
    if not callable(getattr(f, method, None)):
        raise TypeError(f"{f.__name__} has no method {method}, which would be its pass")

    @functools.wraps(f, updated=())
    def of_arguments(*args, **kwargs):
        return make(f, getattr(f(*args, **kwargs), method))

    return of_arguments


def module_pass(pass_func=None, opt_level=0, name=None, required=None, traceable=False):
    """Makes a pass of ``f(mod, ctx) -> mod``; usable as a decorator with arguments. Of a class it is the method ``transform_module``, and
    calling the class makes the pass."""

    def make(f):
        return _pass_of(f, ModulePass, "transform_module", name, opt_level, lambda called: called)

    return make(pass_func) if pass_func is not None else make


def function_pass(pass_func=None, opt_level=0, name=None, required=None, traceable=False):
    """Makes a pass of ``f(func, mod, ctx) -> func``, applied to every function that is not primitive. Of a class it is the method
    ``transform_function``, and calling the class makes the pass."""

    return _over(FunctionPass, lambda f: isinstance(f, Function) and not f.is_primitive, pass_func, opt_level, name)


def prim_func_pass(pass_func=None, opt_level=None, name=None, required=None, traceable=False):
    """Makes a pass of ``f(func, mod, ctx) -> func``, applied to every ``tir.PrimFunc``. Of a class it is the method ``transform_function``, and
    calling the class makes the pass."""
    return _over(PrimFuncPass, lambda f: isinstance(f, PrimFunc), pass_func, opt_level or 0, name)


def _over(base, wanted, pass_func, opt_level, name):
    def on_functions(called):
        def run(mod, ctx):
            single = not hasattr(mod, "functions")
            mod = IRModule.from_expr(mod) if single else mod.shallow_copy()
            for gv, func in mod.functions.items():
                if wanted(func):
                    mod[gv] = called(func, mod, ctx)
            return next(iter(mod.functions.values())) if single else mod

        return run

    def make(f):
        return _pass_of(f, base, "transform_function", name, opt_level, on_functions)

    return make(pass_func) if pass_func is not None else make


def _makes(kind):
    def of_level(opt_level):
        """Decorator: what a pass does becomes the function that gives the pass, under the same name and without parameters."""

        def make(f):
            made = kind(f, opt_level, f.__name__)
            maker = functools.wraps(f)(lambda: made)
            del maker.__wrapped__  # whose parameters it does not have
            return maker

        return make

    return of_level


makes_function_pass, makes_module_pass = _makes(function_pass), _makes(module_pass)


def PrintIR(header="", show_meta_data=False):  # noqa: N802 (name of the established interface)
    """A pass that changes nothing and prints the module, below a header, to the standard error output."""

    def show(mod, ctx):
        print(f"PrintIR({header}):\n{mod.astext(show_meta_data=show_meta_data)}", file=sys.stderr)
        return mod

    return Pass("PrintIR", 0, show)
