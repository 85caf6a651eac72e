"""ToMixedPrecision: convolutions and matrix products in 16-bit floats, and as much of what lies between them as bears it.

Every operator has a colour, which stands beside its `register` call. *Always*: worth it, its float32 arguments are cast.
*Never*: its result would leave the range or the digits of 16 bits, it gets float32. *Follow*: as its arguments are; if
some have 16 bits and others float32, it has 16 bits where casting those costs nothing to speak of. A cast of a value is
made once. Sums are formed in float32 whatever the type of the result (:mod:`nestsmith.numerics`).
"""

import logging

import numpy as np

from .. import expr as rx, op, passes
from ..infer import infer_type
from ..op.registry import ALWAYS, FOLLOW, NEVER
from ..ty import TensorType, TupleType
from .fold_constant import FoldConstant
from .fold_scale_axis import FoldScaleAxis
from .inline import InlineAll
from .moves import RESHAPES
from .simplify import norms_of_inference

__all__ = ["ToMixedPrecision"]

logger = logging.getLogger("nestsmith")

_WIDE = "float32"
_LEAST_OF_FLOAT16, _MOST_OF_FLOAT16 = 2.0**-14, 65504.0


def _fields(t):
    return t.fields if isinstance(t, TupleType) else (t,)


def _survives(constant, narrow):
    """Whether a constant means the same in 16 bits: a mask of -1e9 would become infinite in float16, an epsilon zero."""
    if narrow != "float16":
        return True
    size = np.abs(constant.data[constant.data != 0])
    return not size.size or bool(size.min() >= _LEAST_OF_FLOAT16 and size.max() <= _MOST_OF_FLOAT16)


class _Mixer:
    def __init__(self, narrow, missing, early=False):
        self.narrow, self.missing, self.early = narrow, missing, early
        self.new, self.casts = {}, {}  # by id of the old node: its expression; by that of a new one and a type: its cast

    def dtypes(self, e):
        """The types that the fields of a rebuilt node have by now."""
        return [f.dtype for f in _fields(self.new[id(e)].checked_type)]

    def is_wide(self, e):
        """Whether the network has float32 here (and not integers, say)."""
        return any(isinstance(f, TensorType) and f.dtype == _WIDE for f in _fields(e.checked_type))

    def cast(self, x, dtype):
        if (id(x), dtype) not in self.casts:
            self.casts[id(x), dtype] = x, self.made(x, dtype)  # holding x keeps its id
        return self.casts[id(x), dtype][1]

    def made(self, x, dtype):
        """A cast of `x`; before a reshape if casts are early, so that they become part of what computes the value."""
        name = x.op_name if isinstance(x, rx.Call) and dtype == self.narrow else None
        if name == "cast" and x.args[0].checked_type.dtype == dtype:
            return x.args[0]
        if self.early and name in RESHAPES:
            return rx.with_children(x, [self.cast(x.args[0], dtype)])
        return op.cast(x, dtype)

    def to(self, e, dtype):
        """The new expression of the old node `e` with what was float32 as `dtype`."""
        x, t = self.new[id(e)], e.checked_type
        if isinstance(t, TupleType):
            if isinstance(e, rx.Tuple):
                return rx.with_children(x, [self.to(f, dtype) for f in e.fields])
            if all(o.dtype != _WIDE or n == dtype for o, n in zip(t.fields, self.dtypes(e))):
                return x
            parts = [rx.TupleGetItem(x, i) for i in range(len(t.fields))]
            return rx.Tuple([self.cast(p, dtype) if o.dtype == _WIDE else p for p, o in zip(parts, t.fields)])
        if not isinstance(t, TensorType) or t.dtype != _WIDE or x.checked_type.dtype == dtype:
            return x
        return self.cast(x, dtype)

    def cheap(self, e, call):
        """Whether casting an argument of float32 to 16 bits costs nothing to speak of, and loses nothing but digits: of
        constants, and of what is broadcast, such as vectors of channels."""
        if isinstance(e, rx.Constant):
            return _survives(e, self.narrow)
        if any(isinstance(a, rx.Tuple) for a in call.args):
            return False
        types = [*_fields(e.checked_type), *_fields(call.checked_type)]
        if not all(isinstance(t, TensorType) and t.is_static for t in types):
            return False
        return isinstance(e, rx.Var) or 2 * types[0].size <= types[-1].size

    def colour(self, call):
        """ALWAYS or NEVER, FOLLOW decided."""
        bounds = rx.const([call.attrs.a_min, call.attrs.a_max]) if call.op_name == "clip" else None
        colour = NEVER if bounds is not None and not _survives(bounds, self.narrow) else call.op.colour
        if colour is None:
            self.missing.add(call.op_name)
            return NEVER
        if colour != FOLLOW:
            return colour
        parts = []
        for a in call.args:
            parts += a.fields if isinstance(a, rx.Tuple) else [a]
        wide = [a for a in parts if self.is_wide(a) and _WIDE in self.dtypes(a)]
        narrow = any(self.is_wide(a) and self.narrow in self.dtypes(a) for a in parts)
        return ALWAYS if narrow and all(self.cheap(a, call) for a in wide) else NEVER

    def visit(self, e):
        if isinstance(e, rx.Call) and e.op_name:
            if not any(self.is_wide(a) for a in e.args):
                return rx.with_children(e, [self.new[id(a)] for a in e.args])
            dtype = self.narrow if self.colour(e) == ALWAYS else _WIDE
            made = rx.with_children(e, [self.to(a, dtype) for a in e.args])
            if dtype == self.narrow and made.attrs.get("out_dtype", dtype) != dtype:
                made = rx.Call(made.op, made.args, made.attrs.with_(out_dtype=dtype), made.type_args, made.span)
            return made
        if isinstance(e, rx.Let):
            return rx.Let(self.new[id(e.var)], self.new[id(e.value)], self.new[id(e.body)], e.span)
        if id(e) in self.bound:
            new = self.new.get(id(self.bound[id(e)]), self.bound[id(e)])  # a function that calls itself reads it first
            same = new is self.bound[id(e)] or not isinstance(new.checked_type, TensorType)
            return e if same else rx.Var(e.name_hint, new.checked_type)
        if isinstance(e, (rx.Tuple, rx.TupleGetItem)):
            return rx.with_children(e, [self.new[id(c)] for c in rx.children(e)])
        return rx.with_children(e, [self.to(c, _WIDE) for c in rx.children(e)])

    def run(self, body, keep):
        order = rx.post_order(body)
        self.bound = {id(e.var): e.value for e in order if isinstance(e, rx.Let)}
        for e in order:
            self.new[id(e)] = infer_type(self.visit(e))
        return self.to(body, _WIDE) if keep else self.new[id(body)]


def ToMixedPrecision(mixed_precision_type="float16", missing_op_mode=1):
    """The pass.

    Parameters
    ----------
    mixed_precision_type : str
        "float16", "bfloat16" or "float64": what float32 becomes where it may.
    missing_op_mode : int
        Operators without a colour stay in float32; 0: they are an error, 1: a message names them, 2: nothing is said.

    Parameters of the function keep their type and are cast; bind them first (`bind_params_by_name`) and nothing is left of
    these casts. Batch norms are folded into convolutions before, in float32. Results have 16 bits if what computes them has;
    ``PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True})`` keeps their type. With the option
    ``relay.ToMixedPrecision.early_casts`` what is reshaped is cast before, where fusion can make the cast part of what computes it.

    Raises
    ------
    ValueError
        For another type or mode, and for an operator without a colour in mode 0.
    """
    if mixed_precision_type not in ("float16", "bfloat16", "float64"):
        raise ValueError(f"mixed_precision_type is {mixed_precision_type!r}; it must be 'float16', 'bfloat16' or 'float64'")
    if missing_op_mode not in (0, 1, 2):
        raise ValueError(f"missing_op_mode is {missing_op_mode!r}; it must be 0 (error), 1 (message) or 2 (nothing)")

    @passes.function_pass(opt_level=0, name="ToMixedPrecision")
    def run(func, mod, ctx):
        infer_type(func)
        missing: set[str] = set()
        keep = ctx.config.get("relay.ToMixedPrecision.keep_orig_output_dtype", False)
        early = ctx.config.get("relay.ToMixedPrecision.early_casts", False)
        body = _Mixer(mixed_precision_type, missing, early).run(func.body, keep)
        told = f"ToMixedPrecision: operators without a colour: {', '.join(sorted(missing))}"
        if missing and missing_op_mode == 0:
            raise ValueError(told)
        if missing and missing_op_mode == 1:
            logger.warning("%s; they stay in float32", told)
        return rx.Function(func.params, body, None, func.type_params, func.attrs, func.span)

    @passes.function_pass(opt_level=0, name="InlineCalls")
    def inline(func, mod, ctx):
        called = [e.op for e in rx.post_order(func.body) if isinstance(e, rx.Call)]
        return InlineAll()(mod)["main"] if any(isinstance(f, (rx.Function, rx.GlobalVar)) for f in called) else func

    fold = [norms_of_inference, FoldConstant(), FoldScaleAxis()]
    return passes.Sequential([inline, *fold, run], opt_level=0, name="ToMixedPrecision")
