"""A slow, plain evaluator of te tensors with NumPy: one vectorised expression per stage. It shares nothing with code
generation, so it serves as reference for operators (against NumPy) and for kernels (against operators)."""

import itertools

import numpy as np

_CALLS = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "trunc": np.trunc,
    "sin": np.sin,
    "cos": np.cos,
    "pow": np.power,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fmod": np.fmod,
    "isnan": np.isnan,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.bitwise_not,
    "likely": lambda x: x,
    "erf": lambda x: np.vectorize(__import__("math").erf, otypes=[x.dtype])(x),
}


def _trunc_div(a, b):
    if np.issubdtype(np.result_type(a), np.floating):
        return a / b
    q = np.abs(a) // np.maximum(np.abs(b), 1)
    return np.where((a < 0) == (b < 0), q, -q).astype(np.result_type(a))


def _trunc_mod(a, b):
    return a - _trunc_div(a, b) * b


_BINARY = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _trunc_div,
    "Mod": _trunc_mod,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Min": np.minimum,
    "Max": np.maximum,
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}


class _Env:
    """Values of tensors and variables; a mask says where an access must be in bounds."""

    def __init__(self, tensors, variables, checked=None):
        self.tensors, self.vars, self.checked = tensors, variables, checked

    def under(self, condition):
        return _Env(self.tensors, self.vars, condition if self.checked is None else self.checked & condition)


def _value(e, env):
    kind = e.kind
    if kind in ("IntImm", "FloatImm"):
        return np.asarray(e.value, dtype=e.dtype)
    if kind == "Var":
        return env.vars[e]
    if kind == "Select" or (kind == "Call" and e.symbol == "if_then_else"):
        c, t, f = e.args
        cond = _value(c, env).astype(bool)
        return np.where(cond, _value(t, env.under(cond)), _value(f, env.under(~cond)))
    args = [_value(a, env) for a in e.args] if kind != "Reduce" else []
    if kind == "Cast":
        return args[0].astype(e.dtype)
    if kind == "Not":
        return np.logical_not(args[0])
    if kind == "Call":
        with np.errstate(all="ignore"):
            return np.asarray(_CALLS[e.symbol](*args)).astype(e.dtype)
    if kind == "ProducerLoad":
        data, index = env.tensors[e.symbol], []
        for i, size in zip(args, data.shape):
            bad = (i < 0) | (i >= size)
            assert not np.any(bad if env.checked is None else bad & env.checked), f"{e} reads out of bounds"
            index.append(np.clip(i, 0, size - 1).astype(np.int64))
        return data[tuple(index)]
    with np.errstate(all="ignore"):
        return _BINARY[kind](*args)


def _reduce(e, env, rank):
    parts = e.symbol
    n = len(parts["axis"])
    inner = {v: np.asarray(x).reshape(np.shape(x) + (1,) * n) for v, x in env.vars.items()}
    extents = [_value(a.extent, env) if not isinstance(a.extent, int) else np.asarray(a.extent) for a in parts["axis"]]
    valid = np.asarray(True)
    for k, (a, ext) in enumerate(zip(parts["axis"], extents)):
        steps = np.arange(int(ext.max()), dtype=a.var.dtype)
        steps = steps.reshape((1,) * rank + (1,) * k + (-1,) + (1,) * (n - k - 1))
        valid = valid & (steps < ext.reshape(ext.shape + (1,) * n))
        inner[a.var] = steps + (a.min if isinstance(a.min, int) else _value(a.min, env))
    sub = _Env(env.tensors, inner, None).under(valid)
    valid = valid & _value(parts["condition"], sub).astype(bool)
    shape = np.broadcast_shapes(*[np.shape(v) for v in inner.values()])
    sources = [np.broadcast_to(_value(s, sub), shape) for s in parts["source"]]
    first = parts["init"] or [c[3] for c in parts["combiner"]]
    acc = [np.broadcast_to(_value(v, env), shape[:rank]).astype(s.dtype) for v, s in zip(first, sources)]
    valid = np.broadcast_to(valid, shape)
    for step in itertools.product(*[range(s) for s in shape[rank:]]):
        at = (Ellipsis, *step)
        local = {}
        for (lhs, rhs, _, _), a, s in zip(parts["combiner"], acc, sources):
            local[lhs], local[rhs] = a, s[at]
        new = [
            np.asarray(_value(c[2], _Env(env.tensors, local))).astype(a.dtype) for c, a in zip(parts["combiner"], acc)
        ]
        acc = [np.where(valid[at], x, a) for x, a in zip(new, acc)]
    return acc[parts["value_index"]]


def evaluate(outputs, inputs):
    """Arrays of the output tensors. ``inputs``: a dict from placeholder tensors to arrays."""
    values = dict(inputs)

    def run(op):
        if op.is_placeholder or op.output(0) in values:
            return
        for t in op.input_tensors:
            run(t.op)
        shape = tuple(int(s) for s in op.shape)
        grid = {}
        for k, a in enumerate(op.axis):
            grid[a.var] = np.arange(shape[k], dtype=a.var.dtype).reshape((1,) * k + (-1,) + (1,) * (len(shape) - k - 1))
        for i, body in enumerate(op.body):
            env = _Env(values, grid)
            v = _reduce(body, env, len(shape)) if body.kind == "Reduce" else _value(body, env)
            values[op.output(i)] = np.broadcast_to(v, shape).astype(op.output(i).dtype)

    single = not isinstance(outputs, (list, tuple))
    outputs = [outputs] if single else list(outputs)
    for t in outputs:
        run(t.op)
    return values[outputs[0]] if single else [values[t] for t in outputs]
