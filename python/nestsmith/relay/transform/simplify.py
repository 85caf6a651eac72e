"""Passes that replace operators by simpler ones: SimplifyInference, CanonicalizeCast, CanonicalizeOps, SimplifyExpr,
EliminateCommonSubexpr."""

import math
import re

import numpy as np

from ...numerics import is_float, sum_type
from .. import op, passes
from ..expr import Call, Constant, Function, Tuple, TupleGetItem, count_refs, post_order, rewrite, with_children
from ..infer import infer_type
from ..op.nn.normalisation import expand_to
from ..op.registry import BROADCAST, ELEMWISE, REDUCE
from ..ty import TensorType, dtype_bytes

__all__ = ["SimplifyInference", "CanonicalizeCast", "CanonicalizeOps", "SimplifyExpr", "EliminateCommonSubexpr"]


def _norm(call):
    """The arithmetic of a norm. Of 16-bit floats it is done in float32 from the arguments to the result: squares soon leave
    the range of float16, and differences from a mean that was rounded are wrong."""
    x = call.args[0]
    dtype = x.checked_type.dtype
    wide = sum_type(dtype)
    if wide == dtype:
        return call.op.apart(call)
    args = [op.cast(a, wide) for a in call.args]
    if call.op_name == "variance":
        mean = call.args[1]
        if isinstance(mean, Call) and mean.op_name == "mean" and mean.args[0] is x:
            args[1] = with_children(mean, args[:1])
    return op.cast(call.op.apart(with_children(call, args)), dtype)


def is_whole_norm(call):
    """Whether a norm can be one kernel: a layer norm over the last axis, of an extent that is known."""
    t = call.checked_type
    return call.op_name == "nn.layer_norm" and t.is_static and call.attrs.axis % len(t.shape) == len(t.shape) - 1


def _of_inference(func, others, whole=False):
    """`func` with batch norms as arithmetic and without dropout; `others`: the other norms as well, but for those that stay
    `whole`."""

    def visit(old, new):
        if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
            return new.tuple_value.fields[new.index]
        if isinstance(new, Call) and new.op_name == "nn.batch_norm":
            return Tuple([_norm(new), *new.args[3:]])
        if isinstance(new, Call) and new.op_name == "nn.dropout":
            return new.op.apart(new)
        if others and isinstance(new, Call) and new.op_name and new.op.apart and not (whole and is_whole_norm(old)):
            return _norm(new)
        return new

    infer_type(func)  # every variable needs its type before new operators are made
    return rewrite(func, visit)


@passes.makes_function_pass(opt_level=0)
def SimplifyInference(func, mod, ctx):
    """Batch norm becomes multiply and add, dropout vanishes, other norms become arithmetic; norms and variances of 16-bit
    floats are formed in float32. With the option ``relay.whole_norms`` a layer norm over the last axis stays, as one kernel."""
    return _of_inference(func, True, bool(ctx.config.get("relay.whole_norms")))


@passes.function_pass(opt_level=0, name="SimplifyBatchNorm")
def norms_of_inference(func, mod, ctx):
    """The part of SimplifyInference that makes batch norms foldable."""
    return _of_inference(func, False)


@passes.makes_function_pass(opt_level=3)
def CanonicalizeCast(func, mod, ctx):
    """Every element-wise, broadcasting or reducing user of a widening cast gets a cast of its own, so that kernels hand
    each other the narrow value."""
    infer_type(func)
    refs = count_refs(func.body)

    def widens(old):
        return (isinstance(old, Call) and old.op_name == "cast" and refs[id(old)] > 1
                and dtype_bytes(old.attrs.dtype) > dtype_bytes(old.args[0].checked_type.dtype))  # fmt: skip

    def visit(old, new):
        if not isinstance(new, Call) or not new.op_name or new.op.pattern not in (ELEMWISE, BROADCAST, REDUCE):
            return new
        args = zip(old.args, new.args)
        return with_children(new, [Call(b.op, b.args, b.attrs, span=b.span) if widens(a) else b for a, b in args])

    return rewrite(func, visit)


@passes.makes_function_pass(opt_level=3)
def CanonicalizeOps(func, mod, ctx):
    """bias_add becomes add."""
    def visit(old, new):
        if isinstance(new, Call) and new.op_name == "nn.bias_add":
            rank = len(new.args[0].checked_type.shape)
            return op.add(new.args[0], expand_to(new.args[1], rank, new.attrs.axis))
        return new

    infer_type(func)
    return rewrite(func, visit)


# ---- SimplifyExpr --------------------------------------------------------------------------------------------------


def _scalar_value(e):
    if isinstance(e, Constant) and e.is_scalar:
        return e.numbers.item()
    return None


# What leaves the other operand as it is, and whether on both sides. Of floats -0.0 + 0.0 is 0.0, and -0.0 - -0.0 too.
_NEUTRAL = {"add": (0, True), "multiply": (1, True), "subtract": (0, False), "divide": (1, False)}


def _is_neutral(name, e):
    v = _scalar_value(e)
    if v is None or v != _NEUTRAL[name][0]:
        return False
    signed = is_float(e.checked_type.dtype) and v == 0
    return not signed or (math.copysign(1, v) < 0) == (name == "add")


_POOL = re.compile(r"nn\.(adaptive_|global_)?(max|avg)_pool[123]d")


def _pools_nothing(c):
    """Whether each window of a pooling holds one element, which is the result (VGG's 7x7 out of 7x7)."""
    pool, a = _POOL.fullmatch(c.op_name), c.attrs
    if not pool or a.get("out_layout") not in (None, "", a.layout):
        return False
    if pool[1]:
        x = c.args[0].checked_type
        return x.is_static and c.checked_type.shape == x.shape
    return {*np.ravel(a.pool_size), *np.ravel(a.strides)} == {1} and not any(np.ravel(a.padding))


# Operators whose shape or type is that of another tensor, as those that have it as an attribute.
_OF_ANOTHER = {
    "zeros_like": lambda a, t: op.zeros(t.shape, t.dtype), "ones_like": lambda a, t: op.ones(t.shape, t.dtype),
    "full_like": lambda a, t: op.full(a[1], t.shape, t.dtype), "collapse_sum_like": lambda a, t: op.collapse_sum_to(a[0], t.shape),
}  # fmt: skip
_FITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


def _is_exact(source, to):
    """Whether every value of a type is one of another type."""
    if "bfloat16" in (source, to):
        return source == "bfloat16" and to in ("float32", "float64")
    return np.can_cast(source, to, "safe") and not ("int64" in source and "float" in to)


def _casts(c):
    """A cast of a cast or of a clip as one of them, where the first keeps all values."""
    src, to = c.args[0], c.attrs.dtype
    if isinstance(src, Call) and src.op_name == "cast":
        before = src.args[0].checked_type.dtype
        clip = src.args[0] if isinstance(src.args[0], Call) and src.args[0].op_name == "clip" else None
        low, high = _FITS.get(src.attrs.dtype, (1, 0))
        if _is_exact(before, src.attrs.dtype) or (clip and low <= clip.attrs.a_min and clip.attrs.a_max <= high and "int" in to):
            return src.args[0] if before == to else op.cast(src.args[0], to)
    return c


def _order(c):
    """Which dimension of its argument each one of a transpose is."""
    rank = len(c.checked_type.shape)
    return [a % rank for a in c.attrs.axes or reversed(range(rank))]


def _letters(layout):
    return re.findall(r"[A-Z]|\d+[a-z]", layout)


def _layouts(c):
    """The layouts before and after a transpose or layout transform of another one; None if it is not of one."""
    src = c.args[0]
    first, second = src.op_name if isinstance(src, Call) else None, c.op_name
    if first == second == "transpose":
        before = [f"{i}" for i in range(len(c.checked_type.shape))]
        return before, [before[_order(src)[a]] for a in _order(c)]
    if first == "layout_transform":
        before, after = _letters(src.attrs.src_layout), _letters(src.attrs.dst_layout)
        if second == "transpose":
            return before, [after[a] for a in _order(c)]
        return (before, _letters(c.attrs.dst_layout)) if src.attrs.dst_layout == c.attrs.src_layout else None
    if first == "transpose":
        after = _letters(c.attrs.src_layout)
        return [after[_order(src).index(i)] for i in range(len(after))], _letters(c.attrs.dst_layout)
    return None


def _moves(c):
    """A transpose or layout transform, and the one before it, as one of them or as nothing."""
    still = _order(c) == sorted(_order(c)) if c.op_name == "transpose" else c.attrs.src_layout == c.attrs.dst_layout
    if still:
        return c.args[0]
    both = _layouts(c)
    if both is None:
        return c
    data, (before, after) = c.args[0].args[0], both
    if before == after:
        return data
    if sorted(before) == sorted(after):
        return op.transpose(data, [before.index(a) for a in after])
    return op.layout_transform(data, "".join(before), "".join(after))


def _simplify_call(c):
    name, args = c.op_name, c.args
    if name in _OF_ANOTHER and c.checked_type.is_static:
        like = args[1].checked_type if name == "collapse_sum_like" else args[0].checked_type
        return _OF_ANOTHER[name](args, like)
    if name == "cast_like":
        return _simplify_call(infer_type(op.cast(args[0], args[1].checked_type.dtype)))
    low, high = _FITS.get(c.checked_type.dtype if name == "clip" else "", (-np.inf, np.inf))
    if name == "clip" and np.isfinite(high) and c.attrs.a_min <= low and high <= c.attrs.a_max:
        return args[0]
    if name == "contrib_reverse_reshape" and c.checked_type.is_static:
        return _simplify_call(infer_type(op.reshape(args[0], c.checked_type.shape)))
    if name in _NEUTRAL:
        if _is_neutral(name, args[1]):
            return args[0]
        if _NEUTRAL[name][1] and _is_neutral(name, args[0]):
            return args[1]
    if name == "divide" and isinstance(args[1], Call) and args[1].op_name == "sqrt":
        root = op.rsqrt(args[1].args[0])
        return root if _scalar_value(args[0]) == 1 else op.multiply(args[0], root)
    if name == "add" and isinstance(args[0], Call) and args[0].op_name == "add":
        c1, c2 = args[0].args[1], args[1]
        if isinstance(c1, Constant) and isinstance(c2, Constant) and not is_float(c2.checked_type.dtype):
            return op.add(args[0].args[0], op.add(c1, c2))
    if name in ("reshape", "nn.batch_flatten", "squeeze", "expand_dims"):
        t = c.checked_type
        src = args[0]
        if name == "reshape" and isinstance(src, Call) and src.op_name == "reshape" and t.is_static:
            return op.reshape(src.args[0], t.shape)
    if name in ("transpose", "layout_transform"):
        return _moves(c)
    if _pools_nothing(c):
        return args[0]
    if name == "cast":
        t, src = args[0].checked_type, args[0]
        if isinstance(t, TensorType) and t.dtype == c.attrs.dtype:
            return src
        if isinstance(src, Call) and src.op_name == "cast" and t.dtype == sum_type(c.attrs.dtype):
            if src.args[0].checked_type.dtype == c.attrs.dtype:  # there and back again: 16-bit floats are float32, too
                return src.args[0]
        return _casts(c)
    return c


@passes.makes_function_pass(opt_level=0)
def SimplifyExpr(func, mod, ctx):
    """Removes neutral scalars and pools of single elements, merges reshapes, transposes and casts, turns division by a root
    into rsqrt."""
    infer_type(func)
    return rewrite(func, lambda old, new: _simplify_call(new) if isinstance(new, Call) and new.op_name else new)


# ---- common subexpressions -----------------------------------------------------------------------------------------


def _key_of(e):
    if isinstance(e, Tuple):
        return ("tuple", *map(_key_of, e.fields))
    v = e.data if isinstance(e, Constant) and e.is_scalar else None
    return id(e) if v is None else (e.checked_type.dtype, v.tobytes())  # bits: -0.0 is not 0.0


def _hashable(v):
    if isinstance(v, (list, tuple)):
        return tuple(map(_hashable, v))
    return v.tobytes() if isinstance(v, np.ndarray) else v


def _cse(func, skipped=None):
    seen = {}

    def visit(old, new):
        if skipped is not None and skipped(new):
            return new
        if isinstance(new, Call) and new.op_name and new.args and not new.op.stateful:
            attrs = tuple((k, _hashable(v)) for k, v in new.attrs.items())
            key = (new.op_name, tuple(map(_key_of, new.args)), attrs)
        elif isinstance(new, TupleGetItem):
            key = (id(new.tuple_value), new.index)
        else:
            return new
        keep.append(new)  # ids in keys stay valid while the nodes live
        return seen.setdefault(key, new)

    keep: list = []
    if any(isinstance(e, Function) and e is not func and not e.is_primitive for e in post_order(func)):
        return func  # equal calls in different closures must not merge across them
    return rewrite(func, visit)


def EliminateCommonSubexpr(fskip=None):
    """Equal calls become one, those excepted of which ``fskip(call)`` says True."""
    return passes.function_pass(lambda func, mod, ctx: _cse(func, fskip), opt_level=3, name="EliminateCommonSubexpr")
