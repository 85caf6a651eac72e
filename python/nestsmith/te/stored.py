"""Computations as JSON texts, so that they travel between processes: every operation with its axes and expressions."""

import json

from .. import _core
from ..tir import const, nodes
from .extern import extern_of
from .operation import operations, placeholder
from .scan import scan

__all__ = ["computation", "dumps", "loads"]

_SPATIAL, _REDUCTION = 0, 2


class _Writer:
    def __init__(self, ops):
        self.op_of, self.known, self.nodes, self.vars = {op: i for i, op in enumerate(ops)}, {}, [], {}

    def op(self, op):
        if op.is_placeholder:
            return ["placeholder", op.name, [[self.expr(d)] if isinstance(d, _core.Expr) else int(d) for d in op.shape], op.dtype]
        if extern_of(op) is not None:
            made = extern_of(op).scan
            if made is None:
                raise TypeError(f"{op.name} is a te.extern: statements have no text from which they could be made again")
            return ["scan", op.name, op.tag, self.plain(dict(op.attrs)), self.plain([made.init, made.update, made.state_placeholder])]
        axes = [self.axis(a) for a in op.axis]
        return ["compute", op.name, op.tag, axes, [self.expr(b) for b in op.expressions], self.plain(dict(op.attrs))]

    def plain(self, v):
        """The value of an attribute, or all of them."""
        if isinstance(v, dict):
            return {k: self.plain(x) for k, x in v.items()}
        if isinstance(v, (list, tuple)):
            return [self.plain(x) for x in v]
        if isinstance(v, _core.Tensor):
            return {"tensor": [self.op_of[v.op], v.value_index]}
        return v if isinstance(v, (str, float, bool, type(None))) else int(v)

    def axis(self, a):
        return [self.expr(a.var), self.expr(a.min), self.expr(a.extent)]

    def expr(self, e):
        """The number of an expression among the nodes."""
        e = e if isinstance(e, _core.Expr) else const(e)
        key = (type(e), e)
        if key not in self.known:
            node = self._node(e)
            self.known[key] = len(self.nodes)
            self.nodes.append(node)
        return self.known[key]

    def _node(self, e):
        kind = e.kind
        if kind == "Var":
            return ["Var", e.name, e.dtype, ">=0" in str(e)]
        if kind == "IntImm":
            return [kind, e.dtype, int(e.value)]
        if kind == "FloatImm":
            return [kind, e.dtype, float(e.value).hex()]
        if kind == "StringImm":
            return [kind, e.value]
        if kind == "ProducerLoad":
            return [kind, self.op_of[e.symbol.op], e.symbol.value_index, [self.expr(i) for i in e.args]]
        if kind == "Reduce":
            s = e.symbol
            axes, pairs = [self.axis(a) for a in s["axis"]], [[self.expr(x) for x in c] for c in s["combiner"]]
            return [kind, pairs, axes, *([self.expr(x) for x in s[k]] for k in ("source", "init")), self.expr(s["condition"]), s["value_index"]]
        if kind == "Call":
            return [kind, e.dtype, str(e.symbol), [self.expr(a) for a in e.args]]
        return [kind, e.dtype, [self.expr(a) for a in e.args]]


class _Reader:
    def __init__(self, nodes_):
        self.nodes, self.made, self.ops, self.reductions = nodes_, {}, [], {}

    def op(self, row):
        kind, name, *rest = row
        if kind == "placeholder":
            self.ops.append([placeholder([self.expr(d[0]) if isinstance(d, list) else d for d in rest[0]], rest[1], name)])
            return
        if kind == "scan":
            made = scan(*self.plain(rest[2]), name=name, tag=rest[0], attrs=self.plain(rest[1]))
            self.ops.append(made if isinstance(made, list) else [made])
            return
        tag, axes, body, attrs = rest
        iters = [self.axis(a, _SPATIAL) for a in axes]
        self.ops.append(list(_core.te_compute(name, tag, iters, [self.expr(b) for b in body], self.plain(attrs))))

    def plain(self, v):
        if isinstance(v, list):
            return [self.plain(x) for x in v]
        if isinstance(v, dict) and "tensor" in v:
            return self.ops[v["tensor"][0]][v["tensor"][1]]
        return {k: self.plain(x) for k, x in v.items()} if isinstance(v, dict) else v

    def axis(self, row, kind):
        var, lo, extent = row
        out = _core.expr_iter_var(self.nodes[var][1], self.expr(lo), self.expr(extent), kind, None)
        self.made[var] = out.var
        return out

    def expr(self, i):
        if i not in self.made:
            self.made[i] = self._make(*self.nodes[i])
        return self.made[i]

    def _make(self, kind, *rest):
        if kind == "Var":
            return _core.expr_var(*rest)
        if kind in ("IntImm", "FloatImm"):
            return const(rest[1] if kind == "IntImm" else float.fromhex(rest[1]), rest[0])
        if kind == "StringImm":
            return _core.expr_const(rest[0])
        if kind == "ProducerLoad":
            return self.ops[rest[0]][rest[1]](*map(self.expr, rest[2]))
        if kind == "Reduce":  # of several results: one reduction
            key = json.dumps(rest[:-1])
            if key not in self.reductions:
                self.reductions[key] = self._reduce(*rest[:-1])
            return self.reductions[key][rest[-1]]
        if kind == "Call":
            return nodes._call(rest[0], rest[1], [self.expr(a) for a in rest[2]])
        args = [self.expr(a) for a in rest[1]]
        return nodes.Cast(rest[0], *args) if kind == "Cast" else getattr(nodes, kind)(*args)

    def _reduce(self, pairs, axes, source, init, condition):
        iters = [self.axis(a, _REDUCTION) for a in axes]
        reducer = _core.te_reducer(*([self.expr(c[k]) for c in pairs] for k in range(4)), None)
        return _core.te_reduce(reducer, [self.expr(x) for x in source], iters, self.expr(condition), [self.expr(x) for x in init] or None)


def computation(tensor):
    """Operations behind a tensor, in front of them what they read, and what the steps of scans read."""
    def reads(op):
        made = extern_of(op) and extern_of(op).scan
        return [*op.input_tensors, *made.state_placeholder, *made.update] if made else op.input_tensors

    return operations([tensor.op], reads)


def dumps(ops, tensors):
    """The text of operations, producers first, and of some of their tensors.

    Raises TypeError, ValueError or AttributeError for what has no such text, as sizes that are variables.
    """
    w = _Writer(ops)
    rows = [w.op(op) for op in ops]
    return json.dumps({"nodes": w.nodes, "ops": rows, "tensors": [[w.op_of[t.op], t.value_index] for t in tensors]})


def loads(text):
    """(operations, tensors) of a text of `dumps`: new ones."""
    data = json.loads(text)
    r = _Reader(data["nodes"])
    for row in data["ops"]:
        r.op(row)
    return [ts[0].op for ts in r.ops], [r.ops[i][k] for i, k in data["tensors"]]
