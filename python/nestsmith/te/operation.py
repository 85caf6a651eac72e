"""Placeholders, computes and iterators."""

import inspect

from .. import _core, check
from ..tir import Var, expr_range
from .tag import current_tag

_DATA, _THREAD, _REDUCE = 0, 1, 2


def operations(ops, reads=lambda op: op.input_tensors):
    """Operations and all that they read (or the tensors that ``reads`` gives of each), producers first."""
    out: dict = {}
    stack = [(o, False) for o in reversed(list(ops))]
    while stack:
        op, done = stack.pop()
        if op in out:
            continue
        if done:
            out[op] = None
            continue
        stack.append((op, True))
        stack += [(t.op, False) for t in reversed(list(reads(op))) if t.op not in out]
    return list(out)


def rebuilt(expressions, change, axes=None):
    """The bodies of an operation after ``change`` of each expression; those of a reduction reduce over ``axes``, or the same ones."""
    if expressions[0].kind != "Reduce":
        return [change(e) for e in expressions]
    red = expressions[0].symbol
    axes = axes or [_core.expr_iter_var(a.var, a.min, a.extent, _REDUCE, None) for a in red["axis"]]
    reducer = _core.te_reducer(*([c[k] for c in red["combiner"]] for k in range(4)), None)
    init = [change(e) for e in red["init"]] or None
    return list(_core.te_reduce(reducer, [change(e) for e in red["source"]], axes, change(red["condition"]), init))


def dependent(ops, start):
    """`start`, and those of the operations, producers first, that read what it computes."""
    found = set(start)
    for op in ops:
        if any(t.op in found for t in op.input_tensors):
            found.add(op)
    return found


def var(name="tindex", dtype="int32"):
    """A new scalar variable; as a dimension it stands for an extent that is known only at run time."""
    return Var(check.text("name", name), dtype)


def size_var(name="size", dtype="int32"):
    """A new variable that is known not to be negative."""
    return _core.expr_var(name, dtype, True)


_INT32_MAX = 2**31 - 1


def _shape(shape, what, dtype=None):
    """Dimensions as ints and expressions. A tensor of more elements than 32 bits can count gets 64-bit dimensions, so that
    its loops and indices have them too."""
    if isinstance(shape, (int, float, _core.Expr)) or hasattr(shape, "__index__"):
        shape = (shape,)
    for s in shape:
        if isinstance(s, float) and not s.is_integer():
            raise ValueError(f"shape {tuple(shape)}: {s} is not a whole number")
    dims = [int(s) if isinstance(s, float) else s for s in shape]
    if check.shape(what, dims, dtype) <= _INT32_MAX or not all(isinstance(d, int) for d in dims):
        return dims
    return [_core.expr_const(int(d), "int64") for d in dims]


def placeholder(shape, dtype=None, name="placeholder"):
    """An input tensor of the given shape (ints or integer expressions) and type (default ``float32``).

    Raises
    ------
    ValueError, TypeError
        If a dimension is negative or no whole number, the elements or bytes do not fit 64 bits, or the type is not known.
    """
    dtype = "float32" if dtype is None else dtype
    name = check.text("name", name)
    return _core.te_placeholder(_shape(shape, name, dtype), dtype, name)


def reduce_axis(dom, name="rv", thread_tag="", span=None):
    """An iterator over ``(begin, end)`` (or a :class:`Range`) to reduce over."""
    lo, extent = expr_range(dom)
    return _core.expr_iter_var(check.text("name", name), lo, extent, _REDUCE, thread_tag or None)


def thread_axis(dom=None, tag="", name="", span=None):
    """An iterator that stands for a GPU index, e.g. ``thread_axis("threadIdx.x")`` or
    ``thread_axis((0, 64), "threadIdx.x")``. Without a range the extent comes from the axis it is bound to."""
    if isinstance(dom, str):
        tag, dom = dom, None
    if not tag:
        raise ValueError('thread_axis needs a tag such as "blockIdx.x", "threadIdx.x" or "vthread"')
    lo, extent = (None, None) if dom is None else expr_range(dom)
    return _core.expr_iter_var(name or tag, lo, extent, _THREAD, tag)


def _axis_names(fcompute, rank, varargs_names):
    """Names of the axes from the parameters of the function; fewer named parameters than dimensions are an error."""
    if not callable(fcompute):
        raise TypeError(f"fcompute is {fcompute!r}; it must be a function of the indices, such as lambda i: a[i] + 1")
    spec = inspect.getfullargspec(fcompute)
    names = list(spec.args)
    if inspect.ismethod(fcompute):
        names = names[1:]
    if spec.kwonlyargs or spec.varkw:
        raise ValueError("the function given to te.compute must not have keyword parameters")
    if not names and spec.varargs is None:
        return [f"i{i}" for i in range(rank)]
    if spec.varargs is None:
        extra = len(names) - rank  # lambda i, j, x=x: ... keeps the x of this round of a loop
        return names[:rank] if 0 < extra <= len(spec.defaults or ()) else names
    rest = rank - len(names)
    if varargs_names is not None:
        if len(varargs_names) != rest:
            raise RuntimeError(f"varargs_names has {len(varargs_names)} names for {rest} dimensions")
        return names + list(varargs_names)
    return names + [f"i{i}" for i in range(rest)]


def compute(shape, fcompute, name="compute", tag="", attrs=None, varargs_names=None):
    """A tensor of the given shape whose element at ``(i, j, ...)`` is ``fcompute(i, j, ...)``.

    The axes are named after the parameters of ``fcompute``; parameters beyond the dimensions need default values. The
    function returns an expression, a reduction (``te.sum(...)``), or a tuple of them, which gives a tuple of tensors;
    the tensor has the type of its expression. ``attrs`` is a dict of hints.

    Raises
    ------
    ValueError
        If the function takes another number of indices than ``shape`` has dimensions, the elements or bytes do not fit 64
        bits, or the expression is too large.
    TypeError
        If what the function returns is no expression.
    """
    check.text("name", name)
    check.text("tag", tag)
    scope = current_tag()
    if scope is not None:
        if tag:
            raise ValueError(f"compute '{name}' has the tag '{tag}' inside tag scope '{scope}'; set only one")
        tag = scope
    dims = _shape(shape, name)
    names = _axis_names(fcompute, len(dims), varargs_names)
    given = len(names)
    wrong = f"compute '{name}': the function takes {given} indices, the shape has {len(dims)} dimensions"
    if given > len(dims):
        raise ValueError(wrong)
    names += [f"ax{d}" for d in range(given, len(dims))]  # of a tensor intrinsic
    zeros = [_core.expr_const(0, d.dtype) if isinstance(d, _core.Expr) else 0 for d in dims]
    axes = [_core.expr_iter_var(n, z, d, _DATA, None) for n, z, d in zip(names, zeros, dims)]
    body = fcompute(*[a.var for a in axes[:given]])
    if hasattr(body, "intrin"):
        out = _core.te_compute(name, tag, axes, body.bodies(axes[given:]), dict(attrs or {}))
        _core.stmt_tensorized(out[0], body.intrin.known[0], given)
        return out[0] if len(out) == 1 else out
    if given < len(dims):
        raise ValueError(wrong)
    if body is None:
        raise TypeError(f"compute '{name}': the function returned None; it must return an expression")
    bodies = list(body) if isinstance(body, (list, tuple)) else [body]
    for b in bodies:
        if isinstance(b, str) or getattr(b, "dtype", "") == "handle":
            raise TypeError(f"compute '{name}': the function returned the text {b!r}; it must return an expression")
    out = _core.te_compute(name, tag, axes, bodies, dict(attrs or {}))
    for t in out:
        check.shape(name, t.shape, t.dtype)
    return out[0] if len(out) == 1 else out


def with_attrs(op, **attrs):
    """The tensors of an operation that computes the same as ``op`` on the same axes, with further attributes.

    Parameters
    ----------
    op : te.ComputeOp
    attrs
        Hints, as those of `compute`; they replace hints of the same name.

    Returns
    -------
    tuple of te.Tensor
    """
    return _core.te_compute(op.name, op.tag, op.axis, op.expressions, {**op.attrs, **attrs})
