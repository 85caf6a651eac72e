"""Functions of te.hybrid as statements: a part of Python, read from the source.

Numbers that are known (literals, captured names, lengths) are computed while the function is read; the rest becomes expressions and
statements. A name that is assigned once, and not from memory, stands for its value; others are scalars in memory from there to the end of
their block.
"""

import ast
import builtins
import operator

from ... import _core
from ...tir import op as _op
from ...tir.expr import Range, const
from ...tir.nodes import ProducerLoad, StringImm
from ...tir.stmt import AssertStmt, Evaluate, For, ForKind, IfThenElse, ProducerRealize, ProducerStore, SeqStmt
from ..operation import placeholder
from .runtime import HYBRID_GLOBALS, max_num_threads

__all__ = ["parse_function"]

_BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_LOOPS = {"range": ForKind.SERIAL, "serial": ForKind.SERIAL, "parallel": ForKind.PARALLEL, "vectorize": ForKind.VECTORIZED,
          "unroll": ForKind.UNROLLED, "const_range": None, "bind": ForKind.THREAD_BINDING}  # fmt: skip
_CALLS = {"sqrt", "rsqrt", "log", "exp", "tanh", "sigmoid", "power", "popcount", "round", "likely", "floor", "ceil"}
_TYPES = {k for k in HYBRID_GLOBALS if k.rstrip("0123456789") in ("int", "uint", "float")}


def _known(x):
    return not isinstance(x, (_core.EqualOp, _core.Expr, _core.Tensor)) or getattr(x, "kind", "") == "IntImm"


def _all_or_any(values, every):
    rest = [v for v in values if not _known(v)]
    if any(bool(v) is not every for v in values if _known(v)):
        return not every
    return (_op.all if every else _op.any)(*rest) if rest else every


class Reader:
    """Reads one function: `names` are its symbols, `outs` what `output_tensor` makes. One that another calls adds to what that one has; its
    results are memory."""

    def __init__(self, func, args, outside, caller=None):
        self.name, self.outside, self.inner = func.name, outside, caller is not None
        params = [a.arg for a in func.args.args]
        if len(params) != len(args):
            raise ValueError(f"{func.name} takes {len(params)} arguments ({', '.join(params)}), {len(args)} were given")
        self.names, self.outs, self.returned, self.axes = dict(zip(params, args)), [], None, []
        self.assigned: dict = {}
        for n in ast.walk(func):
            targets = n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AugAssign) else []
            for t in targets:
                if isinstance(t, ast.Name):
                    self.assigned[t.id] = self.assigned.get(t.id, 0) + 1
        self.parts = caller.parts if caller else None
        self.body = self.each(func.body) if caller else self.block(func.body)

    def bad(self, node, why):
        return ValueError(f"te.hybrid function {self.name}, line {getattr(node, 'lineno', '?')}: {why}")

    # ---- statements ----
    def block(self, nodes):
        """One statement; what is allocated in it is there until its end."""
        outer, self.parts = self.parts, []
        known = set(self.names)
        self.each(nodes)
        out: list = []
        for p in reversed(self.parts):
            out = [p(self.one(out))] if callable(p) else [p, *out]
        if outer is not None:
            for k in set(self.names) - known:
                del self.names[k]
        self.parts = outer
        return self.one(out)

    def each(self, nodes):
        for node in nodes:
            visit = getattr(self, "do_" + type(node).__name__, None)
            if visit is None:
                raise self.bad(node, f"{type(node).__name__} is no statement of such functions")
            visit(node)

    @staticmethod
    def one(parts):
        return parts[0] if len(parts) == 1 else SeqStmt(parts) if parts else Evaluate(0)

    def allocated(self, name, shape, dtype, scope="global"):
        t = placeholder(shape, dtype, name)
        self.parts.append(lambda body: ProducerRealize(t, [Range.from_min_extent(const(0), const(s)) for s in t.shape], const(True), body, scope))
        return t

    def store(self, t, indices, value):
        if not isinstance(t, _core.Tensor):
            raise ValueError(f"{self.name}: only tensors are stored to, not {t!r}")
        value = const(value, None if isinstance(value, _core.EqualOp) else t.dtype)
        self.parts.append(ProducerStore(t, value if value.dtype == t.dtype else value.astype(t.dtype), [const(i) for i in indices]))

    def do_Pass(self, node):  # noqa: N802
        pass

    def do_Expr(self, node):  # noqa: N802
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def do_Return(self, node):  # noqa: N802
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        self.returned = [self.value(v) for v in values]
        if not all(any(r is o for o in self.outs) for r in self.returned):
            raise self.bad(node, "it returns what output_tensor has not made")

    def do_Assert(self, node):  # noqa: N802
        self.parts.append(AssertStmt(const(self.value(node.test)), StringImm(str(self.value(node.msg)) if node.msg else "assertion"), Evaluate(0)))

    def do_AugAssign(self, node):  # noqa: N802
        read = ast.copy_location(ast.BinOp(_as_load(node.target), node.op, node.value), node)
        self.do_Assign(ast.copy_location(ast.Assign([node.target], read), node))

    def do_Assign(self, node):  # noqa: N802
        (target,) = node.targets
        if isinstance(target, ast.Subscript):
            self.store(self.value(target.value), self.indices(target.slice), self.value(node.value))
            return
        if not isinstance(target, ast.Name):
            raise self.bad(node, "only names and elements are assigned to")
        name, value = target.id, self.value(node.value, name=target.id)
        if name in self.names and isinstance(self.names[name], _Scalar):
            self.store(self.names[name].tensor, [0], value)
        elif isinstance(value, _core.Tensor) or (self.assigned[name] == 1 and not _reads(value)):
            self.names[name] = value
        else:
            value = const(value)
            self.names[name] = _Scalar(self.allocated(name, (1,), value.dtype))
            self.store(self.names[name].tensor, [0], value)

    def do_If(self, node):  # noqa: N802
        cond = self.value(node.test)
        if _known(cond):
            self.each(node.body if cond else node.orelse)
            return
        self.parts.append(IfThenElse(cond, self.block(node.body), self.block(node.orelse) if node.orelse else None))

    def do_For(self, node):  # noqa: N802
        call = node.iter
        kind = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else None
        if kind not in _LOOPS or not isinstance(node.target, ast.Name) or node.orelse:
            raise self.bad(node, f"loops are 'for i in {'/'.join(_LOOPS)}(...)'")
        args = [self.value(a) for a in call.args]
        tag = args.pop(0) if kind == "bind" else None
        begin, end = args if len(args) == 2 else (0, *args)
        name, hidden = node.target.id, self.names.get(node.target.id)
        if kind == "const_range":
            if not (_known(begin) and _known(end)):
                raise self.bad(node, "const_range needs numbers that are known")
            for i in range(int(begin), int(end)):
                self.names[name] = i
                self.parts.append(self.block(node.body))
        else:
            extent = end - begin if not (_known(begin) and int(begin) == 0) else end
            axis = _core.expr_iter_var(name, begin, extent, 1 if tag else 0, tag)
            self.axes.append(axis)
            self.names[name] = axis.var
            self.parts.append(For(axis.var, const(begin), const(extent), _LOOPS[kind], self.block(node.body), axis if tag else None))
        self.names.pop(name)
        if hidden is not None:
            self.names[name] = hidden

    # ---- values ----
    def indices(self, node):
        return [self.value(e) for e in node.elts] if isinstance(node, ast.Tuple) else [self.value(node)]

    def value(self, node, name=None):
        """A number, a text, a tensor, a list of those, or an expression."""
        kind = type(node)
        if kind is ast.Constant:
            return node.value
        if kind is ast.Name:
            return self.named(node)
        if kind is ast.BinOp or kind is ast.UnaryOp and type(node.op) in _BINARY:
            operands = (node.left, node.right) if kind is ast.BinOp else (node.operand,)
            return _BINARY[type(node.op)](*map(self.value, operands))
        if kind is ast.UnaryOp:
            v = self.value(node.operand)
            return not v if _known(v) else _core.expr_not(v)
        if kind is ast.Compare:
            sides = [self.value(v) for v in (node.left, *node.comparators)]
            return _all_or_any([_BINARY[type(o)](a, b) for o, a, b in zip(node.ops, sides, sides[1:])], True)
        if kind is ast.BoolOp:
            return _all_or_any([self.value(v) for v in node.values], isinstance(node.op, ast.And))
        if kind is ast.IfExp:
            cond = self.value(node.test)
            if _known(cond):
                return self.value(node.body if cond else node.orelse)
            return _core.expr_select(cond, const(self.value(node.body)), const(self.value(node.orelse)))
        if kind is ast.Tuple or kind is ast.List:
            return [self.value(e) for e in node.elts]
        if kind is ast.Attribute:
            return getattr(self.value(node.value), node.attr)
        if kind is ast.Subscript:
            return self.element(node)
        if kind is ast.Call:
            return self.call(node, name)
        raise self.bad(node, f"{kind.__name__} is no expression of such functions")

    def named(self, node):
        if node.id in self.names:
            v = self.names[node.id]
            return ProducerLoad(v.tensor, [0]) if isinstance(v, _Scalar) else v
        if node.id in self.outside:
            return self.outside[node.id]
        if hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        raise self.bad(node, f"{node.id} is not known here; what is assigned in a block ends with it")

    def element(self, node):
        base, index = self.value(node.value), self.indices(node.slice)
        if isinstance(base, _core.Tensor):
            return ProducerLoad(base, index)
        if not all(map(_known, index)):
            raise self.bad(node, "a list is indexed by numbers that are known (loop over const_range)")
        for i in index:
            base = base[int(i)]
        return base

    def call(self, node, name):
        args = [self.value(a) for a in node.args] + [self.value(k.value) for k in node.keywords]
        f = node.func.id if isinstance(node.func, ast.Name) else None
        if f in self.outside and hasattr(self.outside[f], "__hybrid__"):
            return self.inlined(self.outside[f], args)
        if f in ("output_tensor", "allocate"):
            if f == "allocate" or self.inner:
                made = self.allocated(name or f, *args)
            else:
                made = placeholder(args[0], args[1], name or "output")
            if f == "output_tensor":
                self.outs.append(made)
            return made
        if f == "len":
            return args[0].shape[0] if isinstance(args[0], _core.Tensor) else len(args[0])
        if f in ("min", "max"):
            return _op.min(*args) if f == "min" else _op.max(*args)
        if f == "ceil_div":
            return (args[0] + args[1] - 1) // args[1]
        if f == "max_num_threads":
            return max_num_threads(*args)
        if f in _CALLS:
            return getattr(_op, f)(*[const(a) for a in args])
        if f in _TYPES:
            return const(args[0]).astype(f)
        called = self.value(node.func)
        if callable(called) and all(_known(a) for a in args):
            return called(*args)
        raise self.bad(node, f"{ast.unparse(node.func)} is no function that such functions call")

    def inlined(self, func, args):
        tree, outside = func.__hybrid__()
        inner = Reader(tree, args, outside, self)
        self.axes += inner.axes
        return inner.returned[0] if len(inner.returned) == 1 else inner.returned


class _Scalar:
    """A name that is one element of memory."""

    def __init__(self, tensor):
        self.tensor = tensor


def _as_load(node):
    return ast.parse(ast.unparse(node), mode="eval").body


def _reads(e):
    if not isinstance(e, _core.Expr):
        return False
    return e.kind == "ProducerLoad" or any(_reads(a) for a in e.args)


def parse_function(tree, args, outside):
    """The :class:`Reader` of a function's tree. Raises ValueError, with the line, for what it may not have."""
    return Reader(tree, args, outside)
