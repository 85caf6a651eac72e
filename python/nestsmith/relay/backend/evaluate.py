"""The meaning of expressions, node by node: the reference that compiled networks are compared with, and what runs networks that are not
fixed when they are built (sizes known at run time, branches, recursion, closures, references).

An operator is evaluated by its NumPy evaluation in the operator table; one without is compiled by itself for the shapes that it gets. A
value is a `Constant`, a Python tuple of values, a `Closure`, or a list of one value (a reference).
"""

import warnings

import numpy as np

from ... import runtime
from ...runtime.ndarray import NDArray, array
from .. import build_module, expr as rx
from ..module import IRModule
from ..op.registry import Op
from ..transform.fold_constant import evaluate_call
from ..ty import TensorType, TupleType

__all__ = ["Closure", "Evaluator", "value_of", "result_of", "run_compiled"]


class Closure:
    """A function with the values of its free variables."""

    def __init__(self, func, env):
        self.func, self.env = func, env


def value_of(x):
    """A value of what a user gives: arrays, numbers, tuples and lists of them."""
    if isinstance(x, (rx.Constant, Closure, Op)):
        return x
    if isinstance(x, (tuple, list)):
        return tuple(map(value_of, x))
    return rx.Constant(x) if isinstance(x, (np.ndarray, NDArray)) else rx.const(x)


def result_of(value):
    """What a user gets of a value: NDArrays, lists of them for tuples."""
    if isinstance(value, rx.Constant):
        return array(value.data)
    return [result_of(v) for v in value] if isinstance(value, (tuple, list)) else value


def _expr_of(value):
    return rx.Tuple([_expr_of(v) for v in value]) if isinstance(value, tuple) else value


def _value_of_expr(e):
    return tuple(_value_of_expr(f) for f in e.fields) if isinstance(e, rx.Tuple) else e


def _fresh(t, found):
    """A variable, or a tuple of them, of a type; the variables go to `found`."""
    if isinstance(t, TupleType):
        return rx.Tuple([_fresh(f, found) for f in t.fields])
    found.append(rx.Var(f"p{len(found)}", t))
    return found[-1]


def _flat(value):
    return [v for f in value for v in _flat(f)] if isinstance(value, tuple) else [value]


def _unflatten(t, values):
    return tuple(_unflatten(f, values) for f in t.fields) if isinstance(t, TupleType) else next(values)


def run_compiled(func, args, target, device, mod=None):
    """The value of a function of fixed types applied to values: it is built, and run once."""
    module = IRModule(dict(mod.functions) if mod is not None else {})
    module["main"] = func
    lib = build_module.build(module, target=target)
    executor = lib["default"](device or runtime.device(str(target), 0))
    for i, v in enumerate(args):
        executor.set_input(i, array(v.data))
    executor.run()
    outputs = map(executor.get_output, range(executor.get_num_outputs()))
    return _unflatten(func.body.checked_type, iter([rx.Constant(o.numpy(), o.dtype) for o in outputs]))


class Evaluator:
    """Evaluates expressions of a module; `target` and `device` are for operators that are compiled."""

    def __init__(self, mod=None, target="llvm", device=None):
        self.mod, self.target, self.device = mod, target, device

    def apply(self, f, args, attrs=None):
        """The value of a function, closure or operator applied to values."""
        if isinstance(f, Op):
            return self.operator(f, args, attrs)
        if isinstance(f, rx.GlobalVar):
            f = Closure(self.mod[f], {})
        if isinstance(f, rx.Function):
            f = Closure(f, {})
        if len(args) != len(f.func.params):
            raise ValueError(f"a function of {len(f.func.params)} parameters is called with {len(args)} arguments")
        env = dict(f.env)
        env.update((id(p), a) for p, a in zip(f.func.params, args))
        return self.value(f.func.body, env)

    def operator(self, op, args, attrs):
        call = rx.Call(op, [_expr_of(a) for a in args], attrs)
        call.checked_type  # noqa: B018  errors of types come before those of values
        if op.name == "annotation.stop_fusion" or op.name == "on_device":
            return args[0]
        folded = evaluate_call(call)
        if folded is not None:
            return _value_of_expr(folded)
        params: list = []
        body = rx.Call(op, [_fresh(a.checked_type, params) for a in call.args], attrs)
        if not call.args:
            return run_compiled(rx.Function([], body), [], self.target, self.device)
        return run_compiled(rx.Function(params, body), [v for a in args for v in _flat(a)], self.target, self.device)

    def value(self, expr, env=None):
        """The value of an expression; `env`: values of its free variables by id."""
        env, memo = env or {}, {}
        while isinstance(expr, rx.Let):  # the rest of a chain sees what it binds; a function may call itself
            env = dict(env)
            env[id(expr.var)] = self.bound(expr, env)
            expr = expr.body
        stack = [expr]
        while stack:
            e = stack[-1]
            if id(e) in memo:
                stack.pop()
                continue
            missing = [c for c in self.strict(e) if id(c) not in memo]
            if missing:
                stack.extend(reversed(missing))
                continue
            memo[id(e)] = self.node(e, env, lambda x: memo[id(x)])
            stack.pop()
        return memo[id(expr)]

    def bound(self, let, env):
        if not isinstance(let.value, rx.Function):
            return self.value(let.value, env)
        closure = Closure(let.value, dict(env))
        closure.env[id(let.var)] = closure
        return closure

    @staticmethod
    def strict(e):
        """The children that are evaluated before a node."""
        if isinstance(e, (rx.Let, rx.If, rx.Function)):
            return ()
        return tuple(c for c in rx.children(e) if not isinstance(c, (rx.Function, rx.GlobalVar)))

    @staticmethod
    def part(e, env, of):
        """The function or an argument of a call."""
        if isinstance(e, rx.Function):
            return Closure(e, env)
        return e if isinstance(e, (Op, rx.GlobalVar)) else of(e)

    def node(self, e, env, of):
        if isinstance(e, rx.Var):
            if id(e) not in env:
                raise ValueError(f"the variable {e.name_hint!r} has no value")
            return env[id(e)]
        if isinstance(e, rx.Constant):
            return e
        if isinstance(e, rx.Tuple):
            return tuple(of(f) for f in e.fields)
        if isinstance(e, rx.TupleGetItem):
            return of(e.tuple_value)[e.index]
        if isinstance(e, rx.Function):
            return Closure(e, env)
        if isinstance(e, rx.Let):
            return self.value(e, env)
        if isinstance(e, rx.RefCreate):
            return [of(e.value)]
        if isinstance(e, rx.RefRead):
            return of(e.ref)[0]
        if isinstance(e, rx.RefWrite):
            of(e.ref)[0] = of(e.value)
            return ()
        if isinstance(e, rx.If):
            return self.value(e.true_branch if self.value(e.cond, env).data.item() else e.false_branch, env)
        if isinstance(e, rx.Call):
            return self.apply(self.part(e.op, env, of), [self.part(a, env, of) for a in e.args], e.attrs)
        raise ValueError(f"a {type(e).__name__} cannot be evaluated")


def arguments(func, args, kwargs):
    """The arguments of a call by place and by name, in the order of the parameters. Raises ValueError if one is missing or too many."""
    names = [p.name_hint for p in func.params]
    if len(args) > len(names):
        raise ValueError(f"the function takes {len(names)} arguments, {len(args)} are given")
    unknown = [k for k in kwargs if k not in names[len(args) :]]
    if unknown:
        warnings.warn(f"the function has no free parameter {unknown[0]!r}; it has {', '.join(names[len(args) :]) or 'none'}", stacklevel=3)
    missing = [n for n in names[len(args) :] if n not in kwargs]
    if missing:
        raise ValueError(f"the function needs a value of {missing[0]!r}")
    return [value_of(a) for a in args] + [value_of(kwargs[n]) for n in names[len(args) :]]


_AT_RUN_TIME = (rx.If, rx.RefCreate, rx.RefRead, rx.RefWrite)


def _is_fixed(func):
    nodes = rx.post_order(func.body)
    if any(isinstance(e, _AT_RUN_TIME) for e in nodes) or rx.free_vars(func):
        return False
    typed = [e for e in nodes if not isinstance(e, (rx.Function, rx.GlobalVar))]
    tensors = all(isinstance(p.checked_type, TensorType) for p in func.params)
    return tensors and all(isinstance(e._type, (TensorType, TupleType)) and e._type.is_static for e in typed)


def is_compilable(func, mod):
    """Whether all types of a function are fixed tensors (or tuples of them at its end), and nothing waits for values, in the functions
    that it calls neither."""
    func.checked_type  # noqa: B018
    if not _is_fixed(func):
        return False
    ways, todo = {"main": ()}, [("main", func)]
    while todo:
        name, f = todo.pop()
        for e in rx.post_order(f.body):
            if isinstance(e, _AT_RUN_TIME) or (isinstance(e, rx.GlobalVar) and e.name_hint in (name, *ways[name])):
                return False
            if isinstance(e, rx.GlobalVar) and e.name_hint not in ways:
                ways[e.name_hint] = (name, *ways[name])
                todo.append((e.name_hint, mod[e]))
    return True
