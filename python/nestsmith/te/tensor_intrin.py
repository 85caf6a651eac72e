"""Tensor intrinsics: statements that compute a part of a tensor, in the place of loops (``Stage.tensorize``) or as a whole (called in te.compute)."""

from .. import _core
from ..tir import Evaluate, Stmt, decl_buffer, engine_form
from ..tir.stmt_functor import substitute, with_args
from .operation import rebuilt

__all__ = ["TensorIntrin", "TensorIntrinCall", "decl_tensor_intrin"]


class TensorIntrin:
    """What :func:`decl_tensor_intrin` declares.

    Attributes
    ----------
    name : str
    op : te.ComputeOp
        What it computes.
    inputs : list of te.Tensor
    buffers : list of Buffer
        Of the inputs, then of the results.
    scalar_params : list of tir.Var
    body, reduce_init, reduce_update : Stmt or None
    """

    def __init__(self, name, op, inputs, buffers, scalar_params, body, reduce_init, reduce_update):
        self.name, self.op, self.inputs, self.buffers, self.scalar_params = name, op, inputs, buffers, list(scalar_params)
        self.body, self.reduce_init, self.reduce_update = body, reduce_init, reduce_update
        # an operation of its own: one operation may be declared for several intrinsics
        self.known = _core.te_compute(name, op.tag, op.axis, op.expressions, {})
        numbers = [b.number for b in buffers]
        forms = [None if s is None else engine_form(s) for s in (body, reduce_init, reduce_update)]
        offsets = [b.elem_offset for b in buffers]
        strides = [s for b in buffers for s in (b.strides or [None] * len(b.shape))]
        variables = tuple(v if isinstance(v, _core.Var) else None for v in [*offsets, *strides])
        n = len(inputs)
        _core.stmt_intrinsic(*forms, tuple(inputs), tuple(numbers[:n]), tuple(self.known), tuple(numbers[n:]), variables)

    def __call__(self, *args, reduce_axis=None):
        """What te.compute takes from its function: the intrinsic on slices of tensors, such as ``A[i, 0:16]``, then its scalars."""
        reduce_axis = [] if reduce_axis is None else [reduce_axis] if isinstance(reduce_axis, _core.IterVar) else list(reduce_axis)
        slices = [a for a in args if isinstance(a, (_core.TensorSlice, _core.Tensor))]
        scalars = [a for a in args if not isinstance(a, (_core.TensorSlice, _core.Tensor))]
        if len(slices) != len(self.inputs) or len(scalars) != len(self.scalar_params):
            raise ValueError(f"tensor intrinsic {self.name} takes {len(self.inputs)} slices of tensors and "
                             f"{len(self.scalar_params)} scalars, {len(slices)} and {len(scalars)} were given")
        return TensorIntrinCall(self.given(scalars) if scalars else self, [(s.tensor, list(s.indices)) for s in slices], reduce_axis)

    def given(self, scalars):
        """The intrinsic with values for its scalars."""
        values = dict(zip(self.scalar_params, scalars))
        parts = [None if s is None else substitute(s, values) for s in (self.body, self.reduce_init, self.reduce_update)]
        return TensorIntrin(self.name, self.op, self.inputs, self.buffers, [], *parts)


class TensorIntrinCall:
    """An intrinsic on slices of tensors."""

    def __init__(self, intrin, slices, reduce_axis):
        self.intrin, self.slices, self.reduce_axis = intrin, slices, reduce_axis

    def bodies(self, inner):
        """The expressions of the results by the inner axes."""
        op, places = self.intrin.op, {}
        for t, (tensor, index) in zip(self.intrin.inputs, self.slices):
            moved = [d for d, i in enumerate(index) if isinstance(i, slice)]
            moved = moved if len(moved) == len(t.shape) else list(range(len(index) - len(t.shape), len(index)))
            places[t] = (tensor, [i.start or 0 if isinstance(i, slice) else getattr(i, "var", i) for i in index], moved)

        def put(e):
            if e.kind == "ProducerLoad" and e.symbol in places:
                tensor, begin, moved = places[e.symbol]
                at = list(begin)
                for d, i in zip(moved, e.args):
                    at[d] = begin[d] + put(i)
                return tensor(*at)
            return with_args(e, [put(a) for a in e.args]) if e.args and e.kind != "Reduce" else e

        old, new, out = [a.var for a in op.axis], [a.var for a in inner], list(op.expressions)
        red = out[0].symbol["axis"] if out[0].kind == "Reduce" else []
        axes = [_core.expr_iter_var(a.var.name, a.min, a.extent, 2, None) for a in red]
        old, new = [*old, *[a.var for a in red]], [*new, *[a.var for a in axes]]
        return rebuilt(out, lambda e: _core.expr_substitute(put(e), old, new), [*self.reduce_axis, *axes])


def decl_tensor_intrin(op, fcompute, name="tensor_intrin", binds=None, scalar_params=None, default_buffer_params=None):
    """Declares a tensor intrinsic.

    Parameters
    ----------
    op : te.Operation
        A te.compute: what it computes.
    fcompute : callable
        ``f(ins, outs)``, with ``scalar_params`` ``f(ins, outs, scalars)``, of buffers: a statement or call, or three of them: the whole, the
        first values of results, and one that adds to results; the second may be None.
    name : str
    binds : dict of te.Tensor to Buffer, optional
        Buffers of some tensors; their variables for strides and ``elem_offset`` get values where the intrinsic is used.
    scalar_params : list of tir.Var, optional
        Given when the intrinsic is called in te.compute.
    default_buffer_params : dict, optional
        Of ``tir.decl_buffer``, for other tensors.

    Returns
    -------
    TensorIntrin

    Raises
    ------
    TypeError
        If `op` is no te.compute.
    ValueError
        If the function returns something else.
    """
    if not isinstance(op, _core.Operation) or op.is_placeholder:
        raise TypeError(f"decl_tensor_intrin: expect a te.compute, not {op!r}")
    binds, params, inputs = dict(binds or {}), dict(default_buffer_params or {}), list(op.input_tensors)
    buffers = [binds.get(t) or decl_buffer(t.shape, t.dtype, t.op.name, **params) for t in [*inputs, *[op.output(i) for i in range(op.num_outputs)]]]
    ins, outs = buffers[: len(inputs)], buffers[len(inputs) :]
    made = fcompute(ins, outs, list(scalar_params)) if scalar_params else fcompute(ins, outs)
    parts = list(made) if isinstance(made, (list, tuple)) else [made]
    parts = [p if p is None or isinstance(p, Stmt) else Evaluate(p) for p in parts] + [None] * (3 - len(parts))
    if len(parts) != 3 or parts[0] is None:
        raise ValueError(f"decl_tensor_intrin {name}: the function returns a statement, or (body, reset, update), not {made!r}")
    return TensorIntrin(name, op, inputs, buffers, scalar_params or [], *parts)
