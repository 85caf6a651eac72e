"""A computation whose sizes are variables, made anew with numbers in their place."""

import warnings

from .. import _core
from ..tir.expr import const
from .extern import extern_of
from .operation import operations, placeholder
from .schedule import create_schedule

__all__ = ["is_varying", "segment", "specialized", "variables_of"]


def variables_of(dims):
    """The variables in dimensions, each once."""
    return list(dict.fromkeys(v for d in dims if isinstance(d, _core.Expr) for v in _core.expr_vars(d)))


def is_varying(ops):
    """Whether a shape of a computation is not known."""
    return any(isinstance(d, _core.Expr) for op in operations(ops) for d in op.shape)


def _value(e, names, values):
    """A number, or an expression in which the variables are replaced."""
    if not isinstance(e, _core.Expr):
        return e
    out = _core.arith_simplify(_core.expr_substitute(e, names, values), ())
    return int(out) if out.kind == "IntImm" else out


class _Maker:
    def __init__(self, values):
        self.names, self.values = list(values), list(values.values())
        self.tensors: dict = {}

    def dim(self, d):
        return _value(d, self.names, self.values)

    def make(self, op):
        """Operation `op` with the values; its tensors are noted."""
        if all(op.output(i) in self.tensors for i in range(op.num_outputs)):
            return
        record = extern_of(op)
        if record is not None:
            if record.scan is not None:
                made = record.scan.again(self)
            else:
                shapes, values = [[self.dim(d) for d in s] for s in record.shapes], dict(zip(self.names, self.values))
                made = record.again([self.tensors[t] for t in record.inputs], shapes, values)
            self.tensors.update(zip(record.outputs, made if isinstance(made, list) else [made]))
            return
        if op.is_placeholder:
            new = [placeholder([self.dim(d) for d in op.shape], op.dtype, op.name)]
        else:
            new = self._compute(op)
        for i, t in enumerate(new):
            self.tensors[op.output(i)] = t

    def _compute(self, op):
        axes = []
        for a in op.axis:
            lo, extent = (self.dim(v) for v in (a.min, a.extent))
            if isinstance(extent, int) and isinstance(a.extent, _core.Expr):
                lo, extent = (const(v, a.var.dtype) for v in (lo, extent))
            axes.append(_core.expr_iter_var(a.var.name, lo, extent, 0, None))
        names, values = [*self.names, *[a.var for a in op.axis]], [*self.values, *[a.var for a in axes]]
        old = list(op.input_tensors)
        bodies = [_core.expr_substitute(b, names, values, old, [self.tensors[t] for t in old]) for b in op.expressions]
        return _core.te_compute(op.name, op.tag, axes, bodies, {})


def specialized(sch, args, values, scalars):
    """The schedule and its arguments with numbers for the variables of shapes.

    Parameters
    ----------
    sch : te.Schedule
    args : list of te.Tensor and tir.Var
    values : dict of tir.Var to int
    scalars : list of tir.Var
        Variables that become arrays without dimensions, from which programs read them.

    Returns
    -------
    te.Schedule, list of te.Tensor
        The steps of `sch` are done again; where the numbers do not allow them, the loops are plain ones, with a
        warning.
    """
    cells = {v: placeholder((), v.dtype, v.name) for v in scalars}
    maker = _Maker({**{v: const(n, v.dtype) for v, n in values.items()}, **{v: t() for v, t in cells.items()}})
    for op in [*operations(sch.outputs), *[a.op for a in args if isinstance(a, _core.Tensor) and a.op.is_placeholder]]:
        maker.make(op)
    new = create_schedule([maker.tensors[o.output(0)].op for o in sch.outputs])
    try:
        new.apply_steps(sch.steps())
        for old_inside, inside in zip(sch.inside.values(), new.inside.values()):
            inside.apply_steps(old_inside.steps())
    except ValueError as e:
        warnings.warn(f"the schedule cannot be made for the sizes of this call, which runs with plain loops: {e}", stacklevel=6)
        new = create_schedule([maker.tensors[o.output(0)].op for o in sch.outputs])
    tensors = [cells[a] if a in cells else maker.tensors[a] for a in args if isinstance(a, _core.Tensor) or a in cells]
    return new, tensors


def segment(wanted, leaves):
    """The computation of tensors from some of those behind them, by itself.

    Parameters
    ----------
    wanted : list of te.Tensor
    leaves : collection of te.Tensor
        Those that are there already; placeholders are too.

    Returns
    -------
    list of (te.Tensor, te.Tensor), list of te.Tensor
        What it reads, with the placeholder in its place, and the new tensors for those that are wanted.
    """
    maker, reads, stack, needed = _Maker({}), {}, [t.op for t in wanted], set()
    while stack:
        op = stack.pop()
        if op in needed:
            continue
        needed.add(op)
        stack += [t.op for t in op.input_tensors if t not in leaves]
    for op in operations([t.op for t in wanted]):
        if op in needed:
            for t in [op.output(0)] if op.is_placeholder else op.input_tensors:
                if t not in reads and (t in leaves or t.op.is_placeholder):
                    reads[t] = maker.tensors[t] = placeholder(t.shape, t.dtype, t.op.name)
            if not op.is_placeholder:
                maker.make(op)
    return list(reads.items()), [maker.tensors[t] for t in wanted]
