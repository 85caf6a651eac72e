"""Gradients of tensor expressions, in reverse mode.

The adjoint of a tensor has the derivative of a result by each of its elements. An operation adds to the adjoints of the tensors that it
reads. Let ``X[f(i, r)]`` be a read, and ``p(i, r)`` the partial derivative by it. Then the adjoint of ``X[j]`` gets the sum of
``adjoint[i] * p(i, r)`` over all ``(i, r)`` with ``f(i, r) = j``. These equations are solved for the axes in which they are linear, and the
sum goes over the other axes only. For a convolution these are the channels and the kernel.
"""

import math

from .. import _core
from ..numerics import is_float
from ..tir import op as _op
from ..tir.expr import const
from .extern import extern_of
from .operation import compute, dependent, operations, reduce_axis

__all__ = ["gradient"]

_ROUNDING = ("floor", "ceil", "trunc", "round", "nearbyint")
_DERIVATIVES = {
    "exp": lambda x, y: y, "exp2": lambda x, y: y * math.log(2.0), "exp10": lambda x, y: y * math.log(10.0), "log": lambda x, y: 1.0 / x,
    "log2": lambda x, y: 1.0 / (x * math.log(2.0)), "log10": lambda x, y: 1.0 / (x * math.log(10.0)), "log1p": lambda x, y: 1.0 / (x + 1.0),
    "expm1": lambda x, y: y + 1.0, "sigmoid": lambda x, y: y * (1.0 - y), "sqrt": lambda x, y: 0.5 / y, "tanh": lambda x, y: 1.0 - y * y,
    "rsqrt": lambda x, y: -0.5 * y / x, "sin": lambda x, y: _op.cos(x), "cos": lambda x, y: -_op.sin(x), "tan": lambda x, y: 1.0 + y * y,
    "sinh": lambda x, y: _op.cosh(x), "cosh": lambda x, y: _op.sinh(x), "atan": lambda x, y: 1.0 / (1.0 + x * x),
    "asin": lambda x, y: 1.0 / _op.sqrt(1.0 - x * x), "acos": lambda x, y: -1.0 / _op.sqrt(1.0 - x * x),
    "asinh": lambda x, y: 1.0 / _op.sqrt(x * x + 1.0), "acosh": lambda x, y: 1.0 / _op.sqrt(x * x - 1.0), "atanh": lambda x, y: 1.0 / (1.0 - x * x),
    "erf": lambda x, y: 2.0 / math.sqrt(math.pi) * _op.exp(-(x * x)),
    "fabs": lambda x, y: _core.expr_select(_core.expr_bin("GE", x, const(0.0, x.dtype)), const(1.0, x.dtype), const(-1.0, x.dtype)),
}  # fmt: skip


def _typed(value, dtype):
    value = const(value)
    return value if value.dtype == dtype else value.astype(dtype)


def _reads(e, by, found):
    """Appends (tensor, indices, partial derivative) of all reads of floats in an expression; `by` is that of what it is a part of."""
    kind, args = e.kind, e.args
    zero = const(0.0, by.dtype)
    if not is_float(e.dtype) or kind in ("FloatImm", "Var"):
        return
    if kind == "ProducerLoad":
        found.append((e.symbol, list(args), by))
    elif kind == "Add" or kind == "Sub":
        _reads(args[0], by, found)
        _reads(args[1], by if kind == "Add" else -by, found)
    elif kind == "Mul":
        _reads(args[0], by * args[1], found)
        _reads(args[1], by * args[0], found)
    elif kind == "Div":
        _reads(args[0], by / args[1], found)
        _reads(args[1], -(by * e) / args[1], found)
    elif kind in ("Max", "Min"):
        first = _core.expr_bin("GE" if kind == "Max" else "LE", args[0], args[1])
        _reads(args[0], _core.expr_select(first, by, zero), found)
        _reads(args[1], _core.expr_select(first, zero, by), found)
    elif kind == "Select" or kind == "Call" and e.symbol == "if_then_else":
        choose = _core.expr_select if kind == "Select" else _op.if_then_else
        _reads(args[1], choose(args[0], by, zero), found)
        _reads(args[2], choose(args[0], zero, by), found)
    elif kind == "Cast":
        if is_float(args[0].dtype):
            _reads(args[0], by.astype(args[0].dtype), found)
    elif kind == "Call" and e.symbol == "pow":
        _reads(args[0], by * args[1] * _op.power(args[0], args[1] - 1.0), found)
        _reads(args[1], by * e * _op.log(args[0]), found)
    elif kind == "Call" and e.symbol in _DERIVATIVES:
        _reads(args[0], by * _typed(_DERIVATIVES[e.symbol](args[0], e), e.dtype), found)
    elif not (kind == "Call" and e.symbol in _ROUNDING):
        raise ValueError(f"te.gradient: the derivative of {e.symbol if kind == 'Call' else kind} is not known, in {e}")


def _simple(e):
    return _core.arith_simplify(const(e), ())


def _slope(e, var):
    """By how much an index grows with a variable: a number that is not 0, or None."""
    if not any(hash(v) == hash(var) for v in _core.expr_vars(e)):
        return None
    d = _simple(_core.expr_substitute(e, [var], [var + 1]) - e)
    return int(d) if d.kind == "IntImm" and int(d) != 0 else None


class _Equations:
    """The axes of an operation, by the indices ``j`` of an element that it reads."""

    def __init__(self, axes, indices, wanted, shape):
        self.axes, self.solved, self.conditions = list(axes), [], []  # solved: (variable, value)
        left = list(zip(map(const, indices), wanted))
        while left:
            k, v, c = self._choice(left)
            if v is None:
                self._whole(left, shape)
                break
            index, j = left.pop(k)
            rest = _core.expr_substitute(index, [v.var], [const(0, v.var.dtype)])
            gap = _simple(j - rest if c > 0 else rest - j)
            if abs(c) > 1:
                self.conditions.append(_core.expr_bin("EQ", _op.floormod(gap, abs(c)), const(0, gap.dtype)))
                gap = _op.floordiv(gap, abs(c))
            exact = hash(gap) == hash(j) and any(j is w and _same(v.extent, s) for w, s in zip(wanted, shape)) and _same(v.min, 0)
            if not exact:
                self.conditions += [_core.expr_bin("GE", gap, const(v.min)), _core.expr_bin("LT", gap, const(v.min) + v.extent)]
            self._solve(v, gap)
            left = [(self.of(e), w) for e, w in left]
        self.conditions = [self.of(x) for x in self.conditions]

    def _choice(self, left):
        best = (None, None, 0)
        for k, (e, _) in enumerate(left):
            for a in self.axes:
                c = _slope(e, a.var)
                size = a.extent if isinstance(a.extent, int) else 1 << 30
                if c is not None and (best[1] is None or size > best[3]):
                    best = (k, a, c, size)
        return best[:3]

    def _solve(self, axis, value):
        self.solved = [(v, _core.expr_substitute(e, [axis.var], [value])) for v, e in self.solved] + [(axis.var, value)]
        self.axes = [a for a in self.axes if a is not axis]

    def _whole(self, left, shape):
        """Equations that are not linear: one axis may count all elements, row by row; else they are conditions."""
        inside = {hash(v) for e, _ in left for v in _core.expr_vars(e)}
        axes = [a for a in self.axes if hash(a.var) in inside]
        if len(axes) == 1 and len(left) == len(shape) and _same(axes[0].extent, math.prod(shape)):
            flat = const(0)
            for (_, j), s in zip(left, shape):
                flat = flat * s + j
            facts = tuple((j, const(0), const(s)) for (_, j), s in zip(left, shape))
            if all(hash(_core.arith_simplify(_core.expr_substitute(e, [axes[0].var], [flat]), facts)) == hash(j) for e, j in left):
                self._solve(axes[0], flat)
                return
        self.conditions += [_core.expr_bin("EQ", e, j) for e, j in left]

    def of(self, e):
        """An expression by the indices, and by the axes that are left."""
        return _core.expr_substitute(const(e), [v for v, _ in self.solved], [x for _, x in self.solved]) if self.solved else const(e)


def _same(a, b):
    return isinstance(a, int) and isinstance(b, int) and int(a) == int(b)


def _handed_on(op, adjoint, axes, tensor, indices, partial, prefix):
    """What the adjoint of a tensor gets by one read."""

    def body(*j):
        at, element = j[: len(prefix)], j[len(prefix) :]
        q = _Equations([*op.axis, *axes], indices, element, tensor.shape)
        left = q.axes
        sums = [reduce_axis((a.min, a.min + a.extent), a.var.name) for a in left]
        value = q.of(adjoint(*at, *[a.var for a in op.axis]) * partial)
        value = _typed(_core.expr_substitute(value, [a.var for a in left], [s.var for s in sums]), tensor.dtype)
        if q.conditions:
            inside = _core.expr_substitute(_op.all(*q.conditions), [a.var for a in left], [s.var for s in sums])
            value = _op.if_then_else(inside, value, const(0.0, tensor.dtype))
        return _op.sum(value, axis=sums) if sums else value

    return compute([*prefix, *tensor.shape], body, f"{tensor.op.name}_grad")


def _of_reduction(op, red):
    """(source, its partial derivative) of a reduction; others than sums, maxima and minima are refused."""
    if len(red["source"]) != 1 or red["init"]:
        raise ValueError(f"te.gradient: {op.name} is a reduction of several values, or has an initial value of its own")
    (source,), (x, y, result, _) = red["source"], red["combiner"][0]
    out, one, kind = op.output(0)(*[a.var for a in op.axis]), const(1.0, source.dtype), result.kind
    same = {hash(result.args[0]), hash(result.args[1])} == {hash(x), hash(y)} if len(result.args) == 2 else False
    if same and kind == "Add":
        partial = one
    elif same and kind in ("Max", "Min"):  # those that are the largest share it
        is_it = _core.expr_select(_core.expr_bin("EQ", source, out), one, const(0.0, source.dtype))
        old = [*op.axis, *red["axis"]]

        def ties(*i):
            ks = [reduce_axis((a.min, a.min + a.extent), a.var.name) for a in red["axis"]]
            return _op.sum(_core.expr_substitute(is_it, [a.var for a in old], [*i, *[k.var for k in ks]]), axis=ks)

        partial = is_it / compute(op.output(0).shape, ties, f"{op.name}_ties")(*[a.var for a in op.axis])
    elif same and kind == "Mul":
        partial = out / source
    else:
        raise ValueError(f"te.gradient: the derivative of the reduction of {op.name} is not known; sums, products, maxima and minima have one")
    return source, _core.expr_select(red["condition"], partial, const(0.0, partial.dtype)) if red["condition"].kind != "IntImm" else partial


def gradient(output, inputs, head=None):
    """Adjoints of tensors.

    Parameters
    ----------
    output : te.Tensor
        Of a floating-point type.
    inputs : te.Tensor or list of te.Tensor
    head : te.Tensor, optional
        The adjoint of `output`: its shape, perhaps behind further dimensions. Default: the identity, so that the result is the Jacobian.

    Returns
    -------
    list of te.Tensor
        One for each input: the dimensions of `head` before those of `output`, then the input's. Zeros where nothing depends on it.

    Raises
    ------
    ValueError
        For operations without a derivative: statements (te.extern), reductions other than sums, products, maxima and minima.
    """
    inputs = [inputs] if isinstance(inputs, _core.Tensor) else list(inputs)
    rank = len(output.shape)
    if head is None:
        same = lambda *i: _op.all(*[_core.expr_bin("EQ", a, b) for a, b in zip(i[:rank], i[rank:])])  # noqa: E731
        one, zero = const(1.0, output.dtype), const(0.0, output.dtype)
        head = compute([*output.shape, *output.shape], lambda *i: _core.expr_select(same(*i), one, zero) if rank else one, "identity")
    prefix = list(head.shape)[: len(head.shape) - rank]
    parts: dict = {output: [head]}
    ops = operations([output.op])
    depends = dependent(ops, [t.op for t in inputs])
    for op in reversed(ops):
        if op.is_placeholder or op not in depends:
            continue
        for k in range(op.num_outputs):
            t = op.output(k)
            if t not in parts:
                continue
            if extern_of(op) is not None:
                raise ValueError(f"te.gradient: {op.name} is made of statements, which have no derivative")
            adjoint, body, axes = _total(t, parts, prefix), op.expressions[k], []
            one, found = const(1.0, t.dtype), []
            if body.kind == "Reduce":
                axes = list(body.symbol["axis"])
                body, one = _of_reduction(op, body.symbol)
            _reads(body, one, found)
            for tensor, indices, partial in found:
                if tensor.op in depends:
                    parts.setdefault(tensor, []).append(_handed_on(op, adjoint, axes, tensor, indices, partial, prefix))
    return [_total(t, parts, prefix) for t in inputs]


def _total(tensor, parts, prefix):
    """The adjoint of a tensor: the sum of its parts."""
    found = parts.get(tensor, [])
    if len(found) != 1:
        zero = const(0.0, tensor.dtype)
        total = lambda *i: sum((p(*i) for p in found[1:]), found[0](*i)) if found else zero  # noqa: E731
        parts[tensor] = [compute([*prefix, *tensor.shape], total, f"{tensor.op.name}_adjoint")]
    return parts[tensor][0]
