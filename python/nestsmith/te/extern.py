"""Operations that are no expressions: statements by hand (``tir.ir_builder``), or a call of a global function of Python.

To schedules such an operation is a reduction over all of its inputs, which is what it needs of them; its statements stand in the program
where its stage does. Calls of global functions are no part of a program: they run between what computes their inputs and what reads
their results.
"""

from .. import _core
from ..tir import op as _op
from ..tir.buffer import decl_buffer
from ..tir.expr import const
from ..tir.stmt import Evaluate, OpaqueCall, Stmt, engine_form, stmt_list
from ..tir.stmt_functor import substitute
from .operation import _shape, compute, operations, reduce_axis
from .tag import current_tag

__all__ = ["ExternOp", "extern", "extern_of", "extern_primfunc"]


class Extern:
    """What an extern operation does."""

    scan = None  # what a te.scan consists of

    def __init__(self, name, inputs, in_buffers, out_buffers, body, fcompute, shapes, dtypes, attrs):
        self.name, self.inputs, self.in_buffers, self.out_buffers = name, inputs, in_buffers, out_buffers
        self.body, self.fcompute, self.shapes, self.dtypes, self.attrs = body, fcompute, shapes, dtypes, attrs

    @property
    def packed(self):
        """Whether it is calls of global functions of Python, which no program makes."""
        return all(isinstance(s, Evaluate) and str(getattr(s.value, "op", "")) == "tir.tvm_call_packed" for s in stmt_list(self.body))

    def statement(self, ins, outs):
        """What it does to these buffers."""
        body = self.fcompute(ins, outs)
        return body if isinstance(body, Stmt) else Evaluate(body)

    def again(self, inputs, shapes, values):
        """The same on other inputs, with values for variables: its tensors."""
        body = lambda ins, outs: substitute(self.statement(ins, outs), values)  # noqa: E731
        return extern(shapes, inputs, body, self.name, self.dtypes, attrs=self.attrs)


_found: dict = {}  # operation -> Extern


_statements: dict = {}  # operation -> what ``op.body`` and ``op.inputs`` show


def note_statement(op, body, inputs):
    """Shows a statement as the body of an operation."""
    _statements[op] = (body, inputs)


def _shown(name, part, plain):
    setattr(_core.Operation, name, property(lambda op: _statements[op][part] if op in _statements else plain(op)))


_shown("body", 0, vars(_core.Operation)["body"].__get__)
_shown("inputs", 1, lambda op: list(op.input_tensors))


def extern_of(op):
    """The :class:`Extern` of an operation, or None."""
    return _found.get(op)


def scans_of(outputs):
    """The operations of te.scan behind others."""
    ops = operations(outputs) if _found else []
    return list({id(_found[o]): o for o in ops if getattr(_found.get(o), "scan", None) is not None}.values())


class OperationKind(type):
    """The type of classes of operations: what an operation is, its `has` tells."""

    def __instancecheck__(cls, x):
        return isinstance(x, _core.Operation) and cls.has(x)


class ExternOp(metaclass=OperationKind):
    """The class of operations that `extern` makes."""

    has = _found.__contains__


def _stand_in(name, shapes, dtypes, inputs, attrs, tag, rows):
    """Tensors of these shapes that depend on all elements of the inputs, or, of the first dimension, on some of their rows."""
    axes, reads = [], []
    for n, t in enumerate(inputs):
        ks = [reduce_axis(rows.get(t, (0, s)) if d == 0 else (0, s), f"k{n}_{d}") for d, s in enumerate(t.shape)]
        axes += ks
        reads.append(t(*ks) if ks else t())

    def total(dtype):
        out = const(0, dtype)
        for r in reads:
            out = out + r.astype(dtype)
        return out

    same = all(len(s) == len(shapes[0]) and all(bool(a == b) for a, b in zip(s, shapes[0])) for s in shapes)
    if same and axes:
        reducer = _op.comm_reducer(
            (lambda x, y: [a + b for a, b in zip(x, y)]) if len(dtypes) > 1 else (lambda x, y: x + y),
            (lambda *t: [const(0, d) for d in t]) if len(dtypes) > 1 else (lambda t: const(0, t)), "extern",
        )
        values = [total(d) for d in dtypes]
        made = compute(shapes[0], lambda *_: reducer(tuple(values) if len(values) > 1 else values[0], axis=axes), name, tag, attrs)
        return list(made) if isinstance(made, tuple) else [made]

    def one(shape, dtype):
        value = _op.sum(total(dtype), axis=axes) if axes else total(dtype)
        return compute(shape, lambda *_: value, name, tag, attrs)

    return [one(s, d) for s, d in zip(shapes, dtypes)]


def extern(shape, inputs, fcompute, name="extern", dtype=None, in_buffers=None, out_buffers=None, tag="", attrs=None, rows=None):
    """Tensors that statements compute.

    Parameters
    ----------
    shape : tuple, or list of tuples
        Of the result, or of each of several.
    inputs : list of te.Tensor
    fcompute : callable
        ``f(ins, outs)``, both lists of buffers: a statement (of ``tir.ir_builder``) that writes the outputs, or ``tir.call_packed(name, ...)``,
        which calls a function that ``register_func`` has registered, with arrays.
    name : str
    dtype : str or list of str, optional
        Of the results; that of the inputs, if they have one.
    in_buffers, out_buffers : list of Buffer, optional
    tag : str
    attrs : dict, optional
    rows : dict, optional
        Of the first dimension of some inputs, the range that is read: ``(begin, end)``.

    Returns
    -------
    te.Tensor, or list of te.Tensor
        Raises ValueError if the number or the shapes of buffers are other ones, or the type is not known, TypeError if the function returns
        something else.
    """
    tag = tag or current_tag() or ""
    shapes = [shape] if not isinstance(shape, list) or not shape or not hasattr(shape[0], "__len__") else shape
    if isinstance(shape, (int, _core.Expr)):
        shapes = [(shape,)]
    shapes = [list(_shape(s, name)) for s in shapes]
    for t in inputs:
        if not isinstance(t, _core.Tensor):
            raise ValueError(f"extern '{name}': expect inputs to be tensor, not {type(t).__name__}")
    if dtype is None:
        types = {t.dtype for t in inputs}
        if len(types) != 1:
            raise ValueError(f"extern '{name}': Cannot infer output type from inputs of types {sorted(types)}, please provide dtype argument")
        dtype = types.pop()
    dtypes = [dtype] * len(shapes) if isinstance(dtype, str) else list(dtype)
    ins = list(in_buffers or [decl_buffer(t.shape, t.dtype, t.op.name) for t in inputs])
    outs = list(out_buffers or [decl_buffer(s, d, name if len(shapes) == 1 else f"{name}_{i}") for i, (s, d) in enumerate(zip(shapes, dtypes))])
    for what, buffers, wanted in (("in_buffers", ins, [t.shape for t in inputs]), ("out_buffers", outs, shapes)):
        if len(buffers) != len(wanted):
            raise RuntimeError(f"Number of inputs and {what} mismatch: {len(wanted)} vs {len(buffers)}.")
    body = fcompute(ins, outs)
    if isinstance(body, (_core.Expr, OpaqueCall)):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise ValueError(f"Function '{getattr(fcompute, '__name__', fcompute)}' should return PrimExpr or Stmt, but it returned '{type(body)}'")
    made = _stand_in(name, shapes, dtypes, list(inputs), attrs, tag, rows or {})
    record = Extern(name, list(inputs), ins, outs, body, fcompute, shapes, dtypes, attrs)
    record.outputs = made
    numbers = [tuple(b.number for b in x) for x in (ins, outs)]
    _core.stmt_attach(engine_form(body), tuple(inputs), numbers[0], tuple(made), numbers[1])
    for t in made:
        _found[t.op] = record
        note_statement(t.op, body, record.inputs)
    return made[0] if len(made) == 1 else made


def extern_primfunc(input_tensors, primfunc, **kwargs):
    """The tensors that a ``tir.PrimFunc`` computes: its first buffers are the inputs, the rest the results."""
    buffers = [primfunc.buffer_map[p] for p in primfunc.params if p in primfunc.buffer_map]
    ins, outs = buffers[: len(input_tensors)], buffers[len(input_tensors) :]
    shapes = [tuple(b.shape) for b in outs]
    return extern(shapes, input_tensors, lambda i, o: primfunc.body, in_buffers=ins, out_buffers=outs, dtype=[b.dtype for b in outs], **kwargs)


